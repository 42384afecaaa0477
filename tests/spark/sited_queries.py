"""Queries over streams that live at the sites of a cluster."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from midstream import Join
from midstream.engine.encode import Encoder
from midstream.engine.places import Places
from midstream.engine.program import Program
from midstream.protocol.progress import EpochProgress
from midstream.spark.execution import encoders_of
from midstream.spark.site_tasks import find_site_hosts
from midstream.spark.task_ranges import SiteHosts, TaskRanges
from midstream.testing.random_streams import START
from tests.spark.feed import Feed, input_of_batches
from tests.spark.runner import Runner, check
from tests.spark.site_network import sent_bytes

SECOND = 1_000_000
EPOCH_SECONDS = 10
FEW, MANY, KEYS = 400, 10_000, 100_000
TEXT_BYTES = 100
HOMES = {"a": "frankfurt", "b": "paris", "c": "oregon"}
RUNS: dict[str, dict[str, Any]] = {
    "adaptive": {"sited": True, "phases": "acc", "epochs": 5, "options": {"adapt": "auto"}},
    "fixed": {"sited": True, "phases": "acc", "epochs": 5, "options": {"adapt": "off"}},
    "unsited": {
        "sited": False,
        "phases": "acc",
        "epochs": 5,
        "options": {"adapt": "off", "partitions": 3, "plan": "a b c"},
    },
}
# Nobody is at this site.
_ATLANTIS: dict[str, Any] = {
    "sited": True,
    "phases": "a",
    "epochs": 3,
    "homes": {"a": "frankfurt", "b": "atlantis", "c": "oregon"},
    "options": {"adapt": "off", "plan": "a: [b, c], [1, 1]; b: [a, c], [0, 0]; c: [b, a], [1, 0]"},
}


def run_queries(spark: SparkSession, keepers: Mapping[str, int], folder: Path) -> dict[str, object]:
    """Run the queries one after the other; ``keepers`` are a process at each site."""
    done: dict[str, object] = {}
    for name, run in {**RUNS, "atlantis": _ATLANTIS}.items():
        feed = Feed(spark, folder / name / "in")
        feed.add(*epochs(run["phases"], run["epochs"]))
        runner = Runner(folder / name)
        traffic = Traffic(keepers)
        homes = run.get("homes", HOMES)
        join = join_of(spark, feed, homes if run["sited"] else {})
        hosts = find_site_hosts(spark.sparkContext)
        writer = join.writeStream.format("parquet").option("path", runner.out)
        writer = writer.option("checkpointLocation", runner.checkpoint).options(**run["options"])
        begin = time.monotonic()
        with nullcontext() if run["sited"] else hashed_over(hosts):
            query = writer.addListener(traffic).trigger(availableNow=True).start()
            query.awaitTermination()
        seconds = time.monotonic() - begin
        results = check(join.query(), input_of_batches(feed, runner.checkpoint), runner.results())
        done[name] = {
            "results": results.num_rows,
            "reported": traffic.reported,
            "measured": traffic.measured,
            "plans": [progress["plan"] for progress in query.recentProgress],
            "events": [event for progress in query.recentProgress for event in progress["events"]],
            "seconds": seconds,
        }
    return done


class Traffic:
    """What goes over the links between sites, as it is reported and as the interfaces count it.

    Not in the first epoch, in which the code of the query goes to each site.
    """

    def __init__(self, keepers: Mapping[str, int]) -> None:
        self.reported: Counter[str] = Counter()
        self.measured: Counter[str] = Counter()
        self._sites = set(HOMES.values())
        self._keepers = keepers
        self._before: dict[str, int] | None = None

    def __call__(self, event: object) -> None:
        if not isinstance(event, EpochProgress):
            return
        now = sent_bytes(self._keepers)
        if self._before is not None:
            self.reported.update({name: counts.bytes for name, counts in event.links.items()})
            self.measured.update(
                {name: now[name] - self._before[name] for name in now if self._sites >= set(name.split("->"))}
            )
        self._before = now


@contextmanager
def hashed_over(hosts: SiteHosts) -> Iterator[None]:
    """Streams are read where they are, and every shuffle goes over all sites: as an ordinary job does it."""
    sites = tuple(HOMES.values())

    def for_places(places: Places, _cores: int, _hosts: SiteHosts) -> TaskRanges:
        return TaskRanges(places.partitions, places.partitions, sites, hosts)

    def encoders(program: Program, *, whole_rows: bool) -> dict[str, Encoder]:
        made = encoders_of(program, whole_rows=whole_rows)
        return {name: replace(encoder, site=HOMES[name]) for name, encoder in made.items()}

    with (
        mock.patch.object(TaskRanges, "for_places", for_places),
        mock.patch("midstream.spark.execution.encoders_of", encoders),
    ):
        yield


def join_of(spark: Any, feed: Feed, homes: Mapping[str, str]) -> Join:
    join = Join(spark)
    for name in HOMES:
        join = join.stream(name, feed.df(name), time="t", site=homes.get(name))
    join = join.on("a.k = b.k", "b.k = c.k").within("40 seconds")
    join = join.select("a.id", "b.id", "c.id", "a.text", "b.text", "c.text")
    if not homes:
        return join
    return join.link(latency="1 ms", bandwidth="500 kbit").sink_site("frankfurt")


def epochs(phases: str, each: int) -> list[dict[str, pa.Table]]:
    """In each phase the stream of its name brings most rows."""
    rng = np.random.default_rng(3)
    return [
        {name: _rows(rng, number, MANY if name == phases[number // each] else FEW) for name in HOMES}
        for number in range(each * len(phases))
    ]


def _rows(rng: np.random.Generator, epoch: int, count: int) -> pa.Table:
    times = START + SECOND * EPOCH_SECONDS * epoch + np.sort(rng.integers(0, SECOND * EPOCH_SECONDS, count))
    return pa.table(
        {
            "id": pa.array(epoch * 1_000_000 + np.arange(count)),
            "t": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(rng.integers(0, KEYS, count)),
            "text": pa.array([text.hex() for text in _texts(rng, count)]),
        }
    )


def _texts(rng: np.random.Generator, count: int) -> list[bytes]:
    data = rng.bytes(TEXT_BYTES * count)
    return [data[TEXT_BYTES * i : TEXT_BYTES * (i + 1)] for i in range(count)]
