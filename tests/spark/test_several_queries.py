"""Several queries in one session that change their plans at the same time, each by another strategy."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from midstream.inline import InlineJoin
from midstream.runtime.crash_points import crash_hook
from tests.spark.feed import Feed, input_of_batches
from tests.spark.migration_scenario import (
    ASKED,
    BEGUN,
    BUSHY,
    LEFT_DEEP,
    ONE_KEY,
    RIGHT_DEEP,
    SEVERAL_KEYS,
    MigrationScenario,
    columns,
    rows,
)
from tests.spark.runner import Runner

pytestmark = pytest.mark.spark

EPOCHS = 7


@dataclass
class Migrating:
    """A query that asks for another plan when it comes to an epoch."""

    scenario: MigrationScenario
    predicates: tuple[str, ...]
    source: object
    old: str
    new: str
    strategy: str
    query: Any = None

    def join(self):
        return self.scenario.join(self.predicates, self.source)

    def start(self) -> None:
        self.scenario.add(EPOCHS)
        self.query = self.scenario.runner.start(self.join(), partitions=2, plan=self.old)

    def work_alone(self) -> list[Any]:
        """What the epochs count if the same rows are joined in this process, with no other query."""
        settings = self.query._handler.coordinator.settings
        alone = InlineJoin(self.query._handler.coordinator.query, self.old, settings=settings)
        counted = []
        for number, epoch in enumerate(input_of_batches(self.scenario.feed, self.scenario.runner.checkpoint)):
            if number == BEGUN:
                alone.migrate(self.new, self.strategy, background="off")
            alone.run_epoch(epoch)
            counted.append(alone.recentProgress[-1]["work"])
        return counted


def test_each_is_exact_and_does_no_more_work_than_alone(spark, tmp_path: Path):
    def scenario(name: str) -> MigrationScenario:
        return MigrationScenario(spark, Feed(spark, tmp_path / name / "in"), Runner(tmp_path / name))

    queries = [
        Migrating(scenario("m"), ONE_KEY, columns, LEFT_DEEP, RIGHT_DEEP, "moving_state"),
        Migrating(scenario("p"), SEVERAL_KEYS, rows, LEFT_DEEP, BUSHY, "parallel_track"),
        Migrating(scenario("h"), SEVERAL_KEYS, columns, RIGHT_DEEP, LEFT_DEEP, "hybrid"),
    ]
    started, together = threading.Event(), threading.Barrier(len(queries), timeout=120)

    def happen(point: str) -> None:
        if point != "before the step" or threading.current_thread() is threading.main_thread():
            return
        started.wait()
        (one,) = (q for q in queries if q.query._handler.runs_in_this_thread())
        epoch = one.query._handler.manifest.epoch + 1
        if epoch == ASKED:
            one.query.migrate(one.new, one.strategy, background="off")
        if epoch == BEGUN:
            together.wait()

    with crash_hook(happen):
        for one in queries:
            one.start()
        started.set()
        for one in queries:
            one.query.awaitTermination()
    for one in queries:
        assert str(one.query.plan) == one.new
        (first, *_) = (p["batchId"] for p in one.query.recentProgress if p["migration"])
        assert first == BEGUN
        one.scenario.check(one.join())
        assert [p["work"] for p in one.query.recentProgress] == one.work_alone()
