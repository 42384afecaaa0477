"""Tasks at their sites: which hosts of a cluster are at which, and tasks that Spark prefers to run there.

Spark knows hosts, and no sites. So every worker of a cluster has the name of its site in its environment,
from where its executors and their Python workers have it. A preference is no promise: if a site has no
executor, or is busy with a stage for longer than ``spark.locality.wait``, Spark runs its tasks elsewhere.
Only the task can tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence, Set
from typing import Any, NamedTuple, TypeVar

from pyspark import RDD, SparkContext, TaskContext

from midstream.engine.link_traffic import LinkName, link_name
from midstream.errors import InternalError
from midstream.query.network import Site
from midstream.spark.preferred_locations import with_preferred_locations
from midstream.spark.task_ranges import SiteHosts

SITE_VARIABLE = "MIDSTREAM_SITE"
"""The variable in the environment of a worker that names its site."""

NO_SITE = "no site"
"""Where a task has run whose worker has the name of none."""

_DRIVER = "driver"
_ALL = 1_000_000
# Spark notes where a task has run while it goes on with others.
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.05

T = TypeVar("T")


def running_site() -> str | None:
    """The site where this task runs, if its worker says."""
    return os.environ.get(SITE_VARIABLE) or None


def ran_elsewhere(wanted: Site | None, hosts: SiteHosts) -> dict[LinkName, int]:
    """Whether this task runs at another site than it should, if workers have the names of sites."""
    site = running_site()
    if wanted is None or not hosts or site == wanted:
        return {}
    return {link_name(wanted, site or NO_SITE): 1}


def at_sites(rdd: RDD[T], sites: Sequence[str], hosts: SiteHosts) -> RDD[T]:
    """The same partitions, each of them computed at its site if Spark can: anywhere if the site has no hosts.

    What a partition is computed from within its stage is computed there too.
    """
    return with_preferred_locations(rdd, [hosts.get(site, ()) for site in sites])


def find_site_hosts(context: SparkContext) -> dict[str, tuple[str, ...]]:
    """Where the executors are that Spark has by now, by a job with a task for each of them."""
    executors = _executors(context)
    if not executors:
        return {}
    places = [[f"executor_{known.hostPort().rpartition(':')[0]}_{known.id()}"] for known in executors]
    numbers = context.parallelize(range(len(places)), len(places))
    # Each task reads its number: Spark ends a worker that leaves some of its input.
    answers = with_preferred_locations(numbers, places).map(_answer).collect()
    # A task may have run elsewhere than it should.
    hosts = _hosts_of_tasks(context, answers[0].stage, {answer.task for answer in answers})
    found: dict[str, set[str]] = {}
    for answer in answers:
        if answer.site is not None and answer.task in hosts:
            found.setdefault(answer.site, set()).add(hosts[answer.task])
    return {site: tuple(sorted(found[site])) for site in sorted(found)}


def executor_ids(context: SparkContext) -> frozenset[str]:
    """The executors that Spark has by now."""
    return frozenset(str(known.id()) for known in _executors(context))


def _executors(context: SparkContext) -> list[Any]:
    return [known for known in _list(_status(context).executorList(True)) if known.id() != _DRIVER]


class _Answer(NamedTuple):
    stage: int
    task: int
    site: str | None


def _answer(_number: int) -> _Answer:
    context = TaskContext.get()
    if context is None:
        raise InternalError("a task must have a context", got="none")
    return _Answer(context.stageId(), context.taskAttemptId(), running_site())


def _hosts_of_tasks(context: SparkContext, stage: int, tasks: Set[int]) -> dict[int, str]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        hosts = {noted.taskId(): noted.host() for noted in _list(_status(context).taskList(stage, 0, _ALL))}
        if tasks <= hosts.keys() or time.monotonic() > deadline:
            return hosts
        time.sleep(_PAUSE_SECONDS)


def _status(context: SparkContext) -> Any:
    """What Spark shows on its pages."""
    return context._jsc.sc().statusStore()


def _list(of_scala: Any) -> list[Any]:
    return [of_scala.apply(number) for number in range(of_scala.size())]
