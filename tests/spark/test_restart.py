"""What may change when a query is started again, and what may not: every option, every part of a query.

A change that is allowed holds from then on, and the results stay exact. One that is not is refused before
anything is touched, by an error that names what it was and what it is now.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from midstream import MidstreamError
from midstream.spark.options import OPTIONS
from midstream.testing import Shape, assert_same_rows, batch_join, generate
from midstream.testing.expected import Expected
from midstream.testing.reference import Accepted, AcceptRules, ExpectedProgress, accept_epoch, micros
from tests.spark.feed import Feed
from tests.spark.restart_scenario import (
    CONDITION,
    EQUAL,
    GROUPS,
    PARTITIONS,
    PLAN,
    RestartScenario,
)
from tests.spark.runner import Runner

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=25, late=0.1)
QUIET = replace(SHAPE, silent=frozenset((2, 3)))
BEFORE = 2
"""Epochs of the first run; the second run has two more."""


@pytest.fixture(scope="module")
def first_run(spark, tmp_path_factory) -> RestartScenario:
    root = tmp_path_factory.mktemp("restart")
    scenario = RestartScenario(Feed(spark, root / "in"), Runner(root), root / "late")
    epochs = generate({"a": SHAPE, "b": SHAPE, "c": QUIET}, epochs=BEFORE + 2, seed=21)
    scenario.feed.add(*epochs[:BEFORE])
    options = {"plan": PLAN, "partitions": PARTITIONS, "groups": GROUPS}
    scenario.start(scenario.join(), **options).awaitTermination()
    scenario.feed.add(*epochs[BEFORE:])
    return scenario


@pytest.fixture
def scenario(first_run, tmp_path) -> RestartScenario:
    """A copy of its own: the checkpoint has moved, which is allowed."""
    copy = RestartScenario(first_run.feed, Runner(tmp_path), tmp_path / "late")
    for old, new in (
        (first_run.runner.checkpoint, copy.runner.checkpoint),
        (first_run.runner.out, copy.runner.out),
        (first_run.late, copy.late),
    ):
        shutil.copytree(old, new)
    return copy


def _moved(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join())
    query.awaitTermination()
    assert [p["batchId"] for p in query.recentProgress] == [2, 3]
    assert str(query.plan) == PLAN
    scenario.check(scenario.runner.out)


def _path(scenario: RestartScenario, tmp: Path, _capfd) -> None:
    scenario.start(scenario.join(), path=tmp / "elsewhere").awaitTermination()
    scenario.check(scenario.runner.out, tmp / "elsewhere")


def _late_rows(scenario: RestartScenario, tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), lateRows=tmp / "elsewhere")
    query.awaitTermination()
    kept = pq.read_table(tmp / "elsewhere", partitioning=None)
    assert set(kept["batchId"].to_pylist()) <= {2, 3}
    assert kept.num_rows == sum(p["numLateRows"] for p in query.recentProgress) > 0
    scenario.check(scenario.runner.out)


def _compression(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    before = set(scenario.runner.out.glob("*.parquet"))
    scenario.start(scenario.join(), compression="zstd").awaitTermination()
    new = [pq.read_metadata(path) for path in set(scenario.runner.out.glob("*.parquet")) - before]
    assert {file.row_group(0).column(0).compression for file in new} == {"ZSTD"}
    scenario.check(scenario.runner.out)


def _idle_timeout(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), idleTimeout="5 seconds")
    query.awaitTermination()
    assert query.lastProgress["sources"]["c"]["idle"]
    scenario.check(scenario.runner.out)


def _ahead(seconds: int) -> Callable[[RestartScenario, Path, Any], None]:
    def run(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
        asked = {"maxEventTimeAhead": f"{seconds} seconds", "eventTimeClock": "stream"}
        running = scenario.start(scenario.join(), **asked)
        running.awaitTermination()
        query = scenario.join().query()
        want = Accepted(progress={name: ExpectedProgress() for name in query.names})
        strict = AcceptRules(max_ahead=seconds * 1_000_000, clock_is_stream=True)
        for number, epoch in enumerate(scenario.feed.epochs):
            accept_epoch(query, want, epoch, strict if number >= BEFORE else AcceptRules())
        future = sum(stream.future for stream in want.progress.values())
        assert sum(p["numFutureRows"] for p in running.recentProgress) == future > 0
        assert_same_rows(scenario.runner.results(), batch_join(query, want.tables(query)))

    return run


def _console(option: str, value: object, shown: str) -> Callable[[RestartScenario, Path, Any], None]:
    def run(scenario: RestartScenario, _tmp: Path, capfd) -> None:
        writer = scenario.writer(scenario.join(), **{option: value})
        writer.format("console").start().awaitTermination()
        printed = capfd.readouterr().out
        assert "Batch: 2" in printed
        assert re.search(shown, printed), printed

    return run


def _adapts(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), adapt="auto")
    query.awaitTermination()
    assert query.explanation("adaptive").startswith("== Adapting ==")
    scenario.check(scenario.runner.out)


def _migrates(option: str, value: str) -> Callable[[RestartScenario, Path, Any], None]:
    def run(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
        query = scenario.start(scenario.join(), **{option: value})
        query.migrate("a (b c)", None if option in ("strategy", "goal") else "hybrid")
        query.awaitTermination()
        begun = next(p["migration"] for p in query.recentProgress if p["migration"])
        assert begun["strategy"] == ("hybrid" if option == "background" else "moving_state")
        # Two batches are too few for a window to pass: without background work the old plan still runs.
        assert (str(query.plan) == "a (b c)") == (option != "background")
        scenario.check(scenario.runner.out)

    return run


def _late_share(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), lateShareWarning="0.75")
    query.awaitTermination()
    assert query._handler.reporter._limits.late_share == 0.75
    scenario.check(scenario.runner.out)


def _single_partition(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), singlePartition="forbid")
    query.awaitTermination()
    assert query._handler.coordinator.settings.single_partition == "forbid"
    scenario.check(scenario.runner.out)


def _replaces(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    """The definition is the same, so nothing is replaced; test_replace.py has what happens otherwise."""
    query = scenario.start(scenario.join(), replace="generalized_hybrid")
    query.awaitTermination()
    assert not query._handler.runner.requests.is_replacing(query._handler.manifest)
    assert query._handler.manifest.replacements == 0
    scenario.check(scenario.runner.out)


def _partitions(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), partitions=GROUPS)
    query.awaitTermination()
    assert query.partitions == GROUPS
    changes = [e for p in query.recentProgress for e in p["events"] if e["type"] == "rescaled"]
    assert [(e["batchId"], e["before"], e["partitions"]) for e in changes] == [(2, PARTITIONS, GROUPS)]
    scenario.check(scenario.runner.out)


def _memory(option: str, value: str) -> Callable[[RestartScenario, Path, Any], None]:
    def run(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
        query = scenario.start(scenario.join(), **{"stateMemory": "4k", option: value})
        query.awaitTermination()
        memory = query._handler.coordinator.settings.memory
        assert memory is not None
        asked = {"stateMemory": 2048, "spill": "largest", "spillShare": 0.5, "cleanupDelay": 5_000_000}
        fields = (memory.budget, memory.strategy, memory.spill_share, memory.cleanup_delay)
        assert dict(zip(asked, fields, strict=True))[option] == asked[option]
        assert any(event["type"] == "state-spilled" for p in query.recentProgress for event in p["events"])
        scenario.check(scenario.runner.out)

    return run


def _balance(option: str, value: str) -> Callable[[RestartScenario, Path, Any], None]:
    def run(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
        given = {"balance": "lazy_disk", "balanceThreshold": "0.99", "balancePause": "1 second"}
        query = scenario.start(scenario.join(), **{**given, option: value})
        query.awaitTermination()
        settings = query._handler.coordinator.settings.balance
        asked = {
            "balance": "lazy_disk",
            "balanceThreshold": 0.9,
            "balancePause": 1_000_000,
            "balanceProductivity": 1.5,
            "forcedSpill": 1024,
        }
        fields = (
            settings.mode,
            settings.threshold,
            settings.pause,
            settings.productivity_ratio,
            settings.forced_spill,
        )
        assert dict(zip(asked, fields, strict=True))[option] == asked[option]
        scenario.check(scenario.runner.out)

    return run


def _of_sites(option: str, value: str) -> Callable[[RestartScenario, Path, Any], None]:
    def run(scenario: RestartScenario, tmp: Path, _capfd) -> None:
        sited = RestartScenario(scenario.feed, Runner(tmp / "sited"), tmp / "sited-late")
        first = sited.start(sited.join().sink_site("paris"))
        first.awaitTermination()
        again = sited.start(sited.join().sink_site("paris"), **{option: value})
        again.awaitTermination()
        policy = again._handler.coordinator.settings.sites
        asked = {"planner": "optimal", "update": "distributed", "siteThreshold": 0.5}
        fields = (policy.planner, policy.update, policy.threshold)
        assert dict(zip(asked, fields, strict=True))[option] == asked[option]
        assert str(again.plan) == str(first.plan)
        sited.check(sited.runner.out)

    return run


ALLOWED = {
    "path": _path,
    "checkpointLocation": _moved,
    "compression": _compression,
    "lateRows": _late_rows,
    "lateShareWarning": _late_share,
    "idleTimeout": _idle_timeout,
    # By the wall clock none of the rows are ahead: both have to hold.
    "maxEventTimeAhead": _ahead(3),
    "eventTimeClock": _ahead(6),
    "adapt": _adapts,
    "singlePartition": _single_partition,
    "goal": _migrates("goal", "quick"),
    "strategy": _migrates("strategy", "moving_state"),
    "background": _migrates("background", "off"),
    "numRows": _console("numRows", 1, "only showing top 1 row"),
    # Values stand to the left when they are not shortened.
    "truncate": _console("truncate", value=False, shown=r"\n\|\d+ *\|"),
    "partitions": _partitions,
    "planner": _of_sites("planner", "optimal"),
    "update": _of_sites("update", "distributed"),
    "siteThreshold": _of_sites("siteThreshold", "0.5"),
    "stateMemory": _memory("stateMemory", "2k"),
    "spill": _memory("spill", "largest"),
    "spillShare": _memory("spillShare", "0.5"),
    "cleanupDelay": _memory("cleanupDelay", "5 seconds"),
    "replace": _replaces,
    "balance": _balance("balance", "lazy_disk"),
    "balanceThreshold": _balance("balanceThreshold", "0.9"),
    "balancePause": _balance("balancePause", "1 second"),
    "balanceProductivity": _balance("balanceProductivity", "1.5"),
    "forcedSpill": _balance("forcedSpill", "1k"),
}
FORBIDDEN = {
    "plan": (PLAN, "a (b c)"),
    "groups": (str(GROUPS), "32"),
    "initialShares": ("none", ",".join(["2"] + ["1"] * (PARTITIONS - 1))),
}


def test_every_option_has_a_place_here_and_the_guide_says_the_same():
    assert sorted([*ALLOWED, *FORBIDDEN]) == sorted(option.name for option in OPTIONS)
    may_change = {option.name for option in OPTIONS if option.may_change != "no"}
    assert may_change == set(ALLOWED)


@pytest.mark.parametrize("option", ALLOWED)
def test_an_option_that_may_change_holds_from_then_on(scenario, tmp_path, capfd, option):
    ALLOWED[option](scenario, tmp_path, capfd)


@pytest.mark.parametrize("option", FORBIDDEN)
def test_an_option_that_shapes_the_state_must_stay(scenario, option):
    old, new = FORBIDDEN[option]
    _must_refuse(scenario, lambda: scenario.start(scenario.join(), **{option: new}), option, old, new)


# What is asked instead, and what the error must name: the part, what it was, what it is.
PARTS: dict[str, tuple[Callable[[RestartScenario], Any], str, str, str]] = {
    "one stream less": (
        lambda q: q.join(order="ab", on=("a.k = b.k", CONDITION), select=("a.id", "b.id")),
        "the streams were",
        "a, b, c",
        "a, b",
    ),
    "another order of streams": (
        lambda q: q.join(order="bac"),
        "the order of the streams was",
        "a, b, c",
        "b, a, c",
    ),
    "another time": (lambda q: q.join(times={"b": "later"}), "streams.b.time", "b.t", "b.later"),
    "another equality": (
        lambda q: q.join(on=("a.k = b.k", "a.k = c.k", CONDITION)),
        "on",
        EQUAL[1],
        "a.k = c.k",
    ),
    "equalities in another order": (lambda q: q.join(on=(*EQUAL[::-1], CONDITION)), "on", EQUAL[0], EQUAL[1]),
    "another condition": (lambda q: q.join(on=(*EQUAL, "a.v < b.v")), "on", CONDITION, "a.v < b.v"),
    "no condition": (lambda q: q.join(on=EQUAL), "on", CONDITION, EQUAL[1]),
    "a column that no state has": (
        lambda q: q.join(select=("a.id", "b.id", "c.k")),
        "must select columns that its state has",
        "a.id, b.id, c.v",
        "c.k",
    ),
    "another type of a column": (
        lambda q: q.join(select=("a.id", "b.id AS c_v")),
        "c_v",
        "int",
        "b.id of type bigint",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_asked_must_stay(scenario, part):
    change, name, old, new = PARTS[part]
    _must_refuse(scenario, lambda: scenario.start(change(scenario)), name, old, new)


def test_lateness_windows_and_outputs_may_change(scenario):
    before = scenario.join().query()
    changed = scenario.join(lateness="9 seconds", select=("c.v AS w", "a.id"))
    changed = changed.within("25 seconds").within("4 seconds", "b", "c")
    running = scenario.start(changed)
    running.awaitTermination()
    assert [p["batchId"] for p in running.recentProgress] == [2, 3]
    after = replace(changed.query(), kept=before.outputs)
    expected = Expected(
        replace(before, windows=changed.within("25 seconds", "b", "c").query().windows), scenario.feed.epochs
    )
    for epoch in range(len(scenario.feed.epochs)):
        expected.begin(epoch, AcceptRules(), before if epoch < BEFORE else after)
    rows = 0
    for epoch, kept in enumerate(expected.tables["results"]):
        files = [pq.read_table(path) for path in scenario.runner.out.glob(f"part-{epoch:010d}-*.parquet")]
        common = expected.common_outputs([epoch])
        got = [expected.named_as_kept(epoch, file.replace_schema_metadata()).select(common) for file in files]
        want = kept.select(common)
        assert_same_rows(pa.concat_tables([want.slice(0, 0), *got]), want)
        rows += want.num_rows
    assert rows == sum(table.num_rows for table in expected.tables["results"]) > 0
    watermark = micros(datetime.fromisoformat(running.lastProgress["watermark"]["a"]))
    assert watermark == (expected.progress(3)["a"].watermark or 0) // 1000 * 1000
    # Readers who want the rows of both find them by merging the schemas.
    both = scenario.feed.spark.read.option("mergeSchema", "true").parquet(str(scenario.runner.out))
    assert set(both.columns) == {"a_id", "b_id", "c_v", "w"}


def test_a_batch_that_comes_again_has_the_columns_that_it_was_begun_with(scenario):
    batches: dict[int, list[str]] = {}

    def fail(_batch, _number):
        raise ZeroDivisionError

    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        scenario.writer(scenario.join()).foreachBatch(fail).start().awaitTermination()
    changed = scenario.writer(scenario.join(select=("c.v AS w",)).within("4 seconds"))
    changed.foreachBatch(
        lambda batch, number: batches.update({number: batch.columns})
    ).start().awaitTermination()
    assert batches == {2: ["a_id", "b_id", "c_v"], 3: ["w"]}


def test_the_time_zone_must_stay(spark, scenario):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        _must_refuse(scenario, lambda: scenario.start(scenario.join()), "timeZone", "UTC", "Asia/Tokyo")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def _must_refuse(
    scenario: RestartScenario, start: Callable[[], object], name: str, old: str, new: str
) -> None:
    before = scenario.files()
    with pytest.raises(MidstreamError) as refusal:
        start()
    assert name in refusal.value.must
    assert old in refusal.value.must
    assert new in str(refusal.value.got)
    assert scenario.files() == before


def test_nothing_is_left_behind_if_outputs_change_before_they_are_published(scenario, tmp_path):
    """As after a crash between the commit and publishing."""
    join = scenario.join()
    scenario.start(join).awaitTermination()
    before = scenario.files()
    scenario.unpublish()
    for changed in (
        scenario.writer(join, lateRows=scenario.late).foreachBatch(lambda df, batch: None),
        scenario.writer(join, lateRows=scenario.late, path=tmp_path / "elsewhere").format("parquet"),
        scenario.writer(join, lateRows=tmp_path / "elsewhere", path=scenario.runner.out).format("parquet"),
        scenario.writer(join, path=scenario.runner.out).format("parquet"),
    ):
        with pytest.raises(MidstreamError, match="of a committed epoch must be"):
            changed.start()
    scenario.start(join).awaitTermination()
    # A folder is given an id when it is first looked at, as that of the first was.
    looked_at = str(scenario.runner.checkpoint / "results" / "_staged" / "folder-id")
    assert set(scenario.files()) - set(before) == {looked_at}
    assert before.items() <= scenario.files().items()
