"""Tasks in a cluster with sites: where they run, and what that sends over the links."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession

from midstream.spark.shuffle import shuffle
from midstream.spark.site_tasks import at_sites, find_site_hosts, running_site
from midstream.spark.task_ranges import SiteHosts
from tests.spark.site_network import sent_bytes

TASKS_PER_SITE = 4
SENT = 4_000_000
CHUNK = 1 << 18

# Workers need not be able to import the tests.
register_pickle_by_value(sys.modules[__name__])

Message = tuple[int, Any]
Sites = list[str | None]


def run_tasks(spark: SparkSession, keepers: Mapping[str, int]) -> dict[str, object]:
    """Run tasks, and tell where they have run; ``keepers`` are a process at each site."""
    context = spark.sparkContext
    hosts = find_site_hosts(context)
    # Neighbouring tasks at the same site: without preferences, Spark begins by starting one at each.
    wanted = [site for site in hosts for _ in range(TASKS_PER_SITE)]
    done = {
        "hosts": hosts,
        "wanted": [wanted, wanted[::-1], wanted],
        "held": sites_of_tasks(context, [wanted, wanted[::-1], wanted], hosts),
        "free": sites_of_tasks(context, [wanted, wanted[::-1], wanted], {}),
        "unknown": sites_of_tasks(context, [["atlantis"]], {**hosts, "atlantis": ["10.77.0.77"]}),
        **send(context, SENT, hosts, keepers),
    }
    # From now on Spark has no patience: it gives tasks of a busy site to others.
    context._jsc.sc().conf().set("spark.locality.wait", "100ms")
    one = [next(iter(hosts))] * len(hosts)
    done["impatient"] = sites_of_tasks(context, [one], hosts, seconds=5.0)
    return done


def sites_of_tasks(
    context: SparkContext, stages: Sequence[Sequence[str]], hosts: SiteHosts, seconds: float = 0.0
) -> list[Sites]:
    """The sites where the tasks of several stages have run, each after a shuffle but the first."""
    tasks = len(stages[0])
    messages: RDD[Any] = context.parallelize([], tasks)
    for number, sites in enumerate(stages):
        if number:
            messages = shuffle([messages], tasks)

        messages = at_sites(messages, sites, hosts).mapPartitionsWithIndex(_note(number, tasks, seconds))
    noted = {(stage, task): site for stage, task, site in messages.values().collect()}
    return [[noted[stage, task] for task in range(tasks)] for stage in range(len(stages))]


def _note(stage: int, tasks: int, seconds: float) -> Callable[[int, Iterable[Message]], Iterator[Message]]:
    """A task that passes on what it gets, and adds where it has run."""

    def note(task: int, messages: Iterable[Message]) -> Iterator[Message]:
        yield from messages
        time.sleep(seconds)
        yield (task + 1) % tasks, (stage, task, running_site())

    return note


def send(context: SparkContext, size: int, hosts: SiteHosts, keepers: Mapping[str, int]) -> dict[str, object]:
    """Send bytes from a site to the two others, and from one of these to the other, each half as many."""
    one, two, three = hosts
    links = [(one, two, size), (one, three, size // 2), (three, two, size // 4)]
    targets = [link[1] for link in links]

    def bytes_to(task: int, messages: Iterable[Any]) -> Iterator[Any]:
        yield from messages
        left = links[task][2]
        while left:
            yield task, os.urandom(min(left, CHUNK))
            left -= min(left, CHUNK)

    def count(task: int, messages: Iterable[Any]) -> Iterator[int]:
        yield sum(len(message) for _, message in messages)

    sources: RDD[Any] = at_sites(context.parallelize([], len(links)), [link[0] for link in links], hosts)
    sent = shuffle([sources.mapPartitionsWithIndex(bytes_to)], len(links))
    before, begin = sent_bytes(keepers), time.monotonic()
    received = at_sites(sent, targets, hosts).mapPartitionsWithIndex(count).collect()
    seconds, after = time.monotonic() - begin, sent_bytes(keepers)
    return {
        "sent": {f"{source}->{target}": size for source, target, size in links},
        "received": dict(zip([f"{source}->{target}" for source, target, _ in links], received, strict=True)),
        "measured": {link: after[link] - before[link] for link in after},
        "seconds": seconds,
    }
