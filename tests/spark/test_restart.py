"""What may change when a query is started again, and what may not: every option, every part of a query.

A change that is allowed holds from then on, and the results stay exact. One that is not is refused before
anything is touched, by an error that names what it was and what it is now.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from midstream import MidstreamError
from midstream.memory.balance import BalanceSettings
from midstream.memory.settings import MemorySettings
from midstream.spark.options import OPTIONS
from midstream.testing import Shape, assert_same_rows, batch_join, generate
from midstream.testing.expected import Expected
from midstream.testing.reference import Accepted, AcceptRules, ExpectedProgress, accept_epoch, micros
from midstream.values import Micros
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


def _outputs(scenario: RestartScenario, tmp: Path, _capfd) -> None:
    """Options of which none changes what another does. The definition is the same: nothing is replaced."""
    options = {"path": tmp / "out elsewhere", "lateRows": tmp / "late elsewhere", "compression": "zstd"}
    options |= {"lateShareWarning": "0.75", "idleTimeout": "5 seconds", "singlePartition": "forbid"}
    query = scenario.start(scenario.join(), **options, replace="generalized_hybrid")
    query.awaitTermination()
    progress = query.recentProgress
    assert [p["batchId"] for p in progress] == [2, 3], "checkpointLocation"
    assert str(query.plan) == PLAN, "checkpointLocation"
    new = [pq.read_metadata(path) for path in (tmp / "out elsewhere").glob("*.parquet")]
    assert {file.row_group(0).column(0).compression for file in new} == {"ZSTD"}, "compression"
    kept = pq.read_table(tmp / "late elsewhere", partitioning=None)
    assert set(kept["batchId"].to_pylist()) <= {2, 3}, "lateRows"
    assert kept.num_rows == sum(p["numLateRows"] for p in progress) > 0, "lateRows"
    assert not _has_many_late_rows(query), "lateShareWarning"
    assert progress[-1]["sources"]["c"]["idle"], "idleTimeout"
    assert query._handler.coordinator.settings.single_partition == "forbid"
    assert not query._handler.runner.requests.is_replacing(query._handler.manifest), "replace"
    assert query._handler.manifest.replacements == 0, "replace"
    scenario.check(scenario.runner.out, tmp / "out elsewhere")


def _has_many_late_rows(query) -> bool:
    return any(problem["type"] == "late-rows" for p in query.recentProgress for problem in p["problems"])


def _ahead(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    """By the wall clock none of the rows are ahead: both options have to hold."""
    asked = {"maxEventTimeAhead": "3 seconds", "eventTimeClock": "stream"}
    running = scenario.start(scenario.join(), **asked)
    running.awaitTermination()
    query = scenario.join().query()
    want = Accepted(progress={name: ExpectedProgress() for name in query.names})
    strict = AcceptRules(max_ahead=3_000_000, clock_is_stream=True)
    for number, epoch in enumerate(scenario.feed.epochs):
        accept_epoch(query, want, epoch, strict if number >= BEFORE else AcceptRules())
    future = sum(stream.future for stream in want.progress.values())
    assert sum(p["numFutureRows"] for p in running.recentProgress) == future > 0
    assert_same_rows(scenario.runner.results(), batch_join(query, want.tables(query)))


def _console(scenario: RestartScenario, _tmp: Path, capfd) -> None:
    scenario.writer(scenario.join(), numRows=1, truncate=False).format("console").start().awaitTermination()
    printed = capfd.readouterr().out
    assert "Batch: 2" in printed
    assert "only showing top 1 row" in printed, "numRows"
    # Values stand to the left when they are not shortened.
    assert re.search(r"\n\|\d+ *\|", printed), printed


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


def _partitions(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    query = scenario.start(scenario.join(), partitions=GROUPS)
    query.awaitTermination()
    assert query.partitions == GROUPS
    assert _has_many_late_rows(query), "without lateShareWarning"
    changes = [e for p in query.recentProgress for e in p["events"] if e["type"] == "rescaled"]
    assert [(e["batchId"], e["before"], e["partitions"]) for e in changes] == [(2, PARTITIONS, GROUPS)]
    scenario.check(scenario.runner.out)


def _memory(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    options = {"stateMemory": "2k", "spill": "largest", "spillShare": "0.5", "cleanupDelay": "5 seconds"}
    query = scenario.start(scenario.join(), **options)
    query.awaitTermination()
    memory = query._handler.coordinator.settings.memory
    assert memory == MemorySettings(2048, "largest", 0.5, Micros(5_000_000))
    assert any(event["type"] == "state-spilled" for p in query.recentProgress for event in p["events"])
    scenario.check(scenario.runner.out)


def _balance(scenario: RestartScenario, _tmp: Path, _capfd) -> None:
    options = {"balance": "lazy_disk", "balanceThreshold": "0.9", "balancePause": "1 second"}
    options |= {"balanceProductivity": "1.5", "forcedSpill": "1k"}
    query = scenario.start(scenario.join(), **options)
    query.awaitTermination()
    settings = query._handler.coordinator.settings.balance
    assert settings == BalanceSettings(
        mode="lazy_disk",
        threshold=0.9,
        pause=Micros(1_000_000),
        productivity_ratio=1.5,
        forced_spill=1024,
    )
    scenario.check(scenario.runner.out)


def _of_sites(scenario: RestartScenario, tmp: Path, _capfd) -> None:
    sited = RestartScenario(scenario.feed, Runner(tmp / "sited"), tmp / "sited-late")
    first = sited.start(sited.join().sink_site("paris"))
    first.awaitTermination()
    for options, names, asked in (
        ({"planner": "optimal", "siteThreshold": "0.5"}, ("planner", "threshold"), ["optimal", 0.5]),
        ({"update": "distributed"}, ("update",), ["distributed"]),
    ):
        again = sited.start(sited.join().sink_site("paris"), **options)
        again.awaitTermination()
        policy = again._handler.coordinator.settings.sites
        assert [getattr(policy, name) for name in names] == asked, options
        assert str(again.plan) == str(first.plan), options
    sited.check(sited.runner.out)


ALLOWED: dict[tuple[str, ...], Callable[[RestartScenario, Path, Any], None]] = {
    (
        *("path", "checkpointLocation", "compression", "lateRows", "lateShareWarning"),
        *("idleTimeout", "singlePartition", "replace"),
    ): _outputs,
    ("maxEventTimeAhead", "eventTimeClock"): _ahead,
    ("adapt",): _adapts,
    ("goal",): _migrates("goal", "quick"),
    ("strategy",): _migrates("strategy", "moving_state"),
    ("background",): _migrates("background", "off"),
    ("numRows", "truncate"): _console,
    ("partitions",): _partitions,
    ("planner", "siteThreshold", "update"): _of_sites,
    ("stateMemory", "spill", "spillShare", "cleanupDelay"): _memory,
    ("balance", "balanceThreshold", "balancePause", "balanceProductivity", "forcedSpill"): _balance,
}
"""Options that change together, and the run with them."""
FORBIDDEN = {
    "plan": (PLAN, "a (b c)"),
    "groups": (str(GROUPS), "32"),
    "initialShares": ("none", ",".join(["2"] + ["1"] * (PARTITIONS - 1))),
}


def test_every_option_has_a_place_here_and_the_guide_says_the_same():
    allowed = list(chain.from_iterable(ALLOWED))
    assert sorted([*allowed, *FORBIDDEN]) == sorted(option.name for option in OPTIONS)
    assert {option.name for option in OPTIONS if option.may_change != "no"} == set(allowed)


@pytest.mark.parametrize("options", ALLOWED, ids=", ".join)
def test_options_that_may_change_hold_from_then_on(scenario, tmp_path, capfd, options):
    ALLOWED[options](scenario, tmp_path, capfd)


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
