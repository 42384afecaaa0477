"""Whether Spark's workers have the packages that the tasks of a join import, found before a query starts.

On a cluster the workers' Python is another installation than the driver's. Without this check a query would
start, and its first batch would end with a page of Spark's text. In local mode both are the same process's.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import platform
import re
import socket
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException

from midstream.errors import WorkerError

_TASK_PACKAGES = ("midstream", "msgspec", "numpy", "pandas", "polars", "pyarrow")
_S3_PACKAGES = ("s3fs",)
# Executors may take some time to start. A cluster without any is no reason to refuse a query: it waits.
_PATIENCE_SECONDS = 60.0
_HOSTS_SHOWN = 3
_HINT = (
    "install midstream for that Python, as the driver has it, or ship an environment: --archives "
    "env.tar.gz#env and spark.pyspark.python=./env/bin/python; --py-files brings neither wheels nor packages "
    "with native code"
)
_log = logging.getLogger("midstream")


class Worker(NamedTuple):
    """A Python of Spark's workers."""

    host: str
    python: str
    versions: Mapping[str, str | None]
    """The versions of packages; empty if it is unknown, None for a package that cannot be imported."""


def check_workers(context: SparkContext, *, remote: bool) -> None:
    """Refuse to start where workers cannot run tasks; ``remote`` if the checkpoint is in an object store."""
    if re.fullmatch(r"local(\[.*\])?", str(context.master)):
        return
    packages = _TASK_PACKAGES + (_S3_PACKAGES if remote else ())
    check_versions(_ask_workers(context, packages), required_versions())


def check_versions(workers: Iterable[Worker], required: Mapping[str, str]) -> None:
    """Refuse workers that lack a package, or have it in a version that does not fit."""
    unfit = {}
    for worker in workers:
        if problems := list(_problems(worker.versions, required)):
            unfit[worker.host] = f"{', '.join(problems)} on {worker.host} ({worker.python})"
    if unfit:
        shown = "; ".join(list(unfit.values())[:_HOSTS_SHOWN])
        more = f"; and on {len(unfit) - _HOSTS_SHOWN} more" if len(unfit) > _HOSTS_SHOWN else ""
        raise WorkerError(
            "Spark's workers must have the packages that the tasks of a join import",
            got=f"{shown}{more}",
            hint=_HINT,
        )


def _problems(versions: Mapping[str, str | None], required: Mapping[str, str]) -> Iterator[str]:
    for name, version in versions.items():
        bounds = required.get(name, "")
        if version is None:
            yield f"no {name}"
        elif not _is_within(version, bounds):
            yield f"{name} {version} instead of {bounds}"


def required_versions() -> dict[str, str]:
    """The versions that workers must have: the driver's of Midstream, and what it depends on."""
    try:
        lines = importlib.metadata.requires("midstream") or []
        version = importlib.metadata.version("midstream")
    except importlib.metadata.PackageNotFoundError:
        return {}  # it was not installed, but put on the path
    plain = (re.fullmatch(r"([\w-]+)\s*([<>=!~][^;]*)", line) for line in lines)
    return {**{match[1]: match[2].strip() for match in plain if match}, "midstream": f"=={version}"}


def _is_within(version: str, bounds: str) -> bool:
    """Whether a version is within bounds such as ``<3,>=2.1``; an unknown one may be."""
    for operator, bound in re.findall(r"(==|>=|<)\s*([\d.]+)", bounds) if version else ():
        # As many parts as the bound has: 2.1.5 is within >=2.1.
        wanted = [int(part) for part in bound.split(".") if part]
        has = [int(part) for part in re.findall(r"\d+", version)][: len(wanted)]
        if not {"==": has == wanted, ">=": has >= wanted, "<": has < wanted}[operator]:
            return False
    return True


def _ask_workers(context: SparkContext, packages: Sequence[str]) -> list[Worker]:
    """What the workers have, by a job with a task for each executor; nothing if none is there in time."""
    # The driver is one of them.
    executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
    tasks = max(executors, 1)
    group = f"midstream-{uuid.uuid4().hex}"
    answers: list[Worker] = []
    errors: list[Exception] = []

    def run() -> None:
        context.setJobGroup(group, "which packages do Spark's workers have?")
        try:
            job = context.parallelize(range(tasks), tasks).mapPartitions(_probe(tuple(packages)))
            answers.extend(Worker(*answer) for answer in job.collect())
        except (Py4JError, PySparkException) as error:
            errors.append(error)

    thread = InheritableThread(target=run, name="midstream workers", daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    if thread.is_alive():
        context.cancelJobGroup(group)
        _log.warning("no executor has started yet: whether workers have all packages could not be checked")
    elif errors:
        raise readable_failure(errors[0]) from errors[0]
    return answers


_Answer = tuple[str, str, dict[str, str | None]]


def _probe(packages: tuple[str, ...]) -> Callable[[Iterable[int]], Iterator[_Answer]]:
    """The task. Workers without Midstream must be able to run it: an inner function is sent as a whole."""

    def probe(_numbers: Iterable[int]) -> Iterator[_Answer]:
        versions: dict[str, str | None] = {}
        for name in packages:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                # It may be on the path without having been installed.
                versions[name] = "" if importlib.util.find_spec(name) else None
        try:
            import midstream.spark.stage_task  # noqa: F401, PLC0415  # what tasks import, on the worker
        except ImportError as error:
            # Packages may be there and not load: native code of another machine, or in a zip.
            versions[str(error.name or "midstream").partition(".")[0]] = None
        yield socket.gethostname(), f"Python {platform.python_version()}, {sys.executable}", versions

    return probe


_REASONS = {
    re.compile(r"Python in worker has different version: '?([\d.]+)"): "Python {}",
    re.compile(r'Cannot run program "([^"]+)"'): "no program {}",
    re.compile(r"No module named '?([\w.]+)"): "a Python without {}",
}
"""What Spark says if the workers' Python cannot run any task, and the same in words."""


def readable_failure(error: Exception) -> Exception:
    """An error that says what is wrong with the workers' Python, if Spark's text does; else Spark's."""
    for pattern, words in _REASONS.items():
        if match := pattern.search(str(error)):
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            return WorkerError(
                f"Spark's workers must have Python {version}, as the driver has",
                got=words.format(match[1]),
                hint="set spark.pyspark.python to the path that this Python has on every worker",
            )
    return error
