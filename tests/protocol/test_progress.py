"""Progress: one committed epoch as a value, and its JSON form."""

import json
import re
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from midstream.engine.link_traffic import LinkTraffic
from midstream.engine.program import StreamCounts
from midstream.engine.work import WorkCounts
from midstream.plan.explain import StateSize
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.problems import StreamIdle
from midstream.protocol.progress import EpochProgress, MigrationProgress, QueryIdentity, state_sizes
from midstream.protocol.replacement_progress import ReplacementProgress
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings
from midstream.protocol.trigger_facts import TREND_EPOCHS, SourceOffsets, TriggerFacts
from midstream.state.manifest import Manifest, StreamProgress
from midstream.state.migration import Migration, RebuildProgress
from midstream.state.slices import Slice, SliceOwner
from tests.helpers import small_query

QUERY = small_query(["a.k = b.k"], default_window=10)
FIRST = Coordinator(QUERY, Settings(1, 4)).initial_manifest("q", parse_plan("a b", QUERY.names))
NOW = datetime(2026, 3, 2, 12, 0, 0, 250_999, tzinfo=UTC)
IDLE = StreamIdle(batch_id=3, since=3, stream="b")
TRIGGER = TriggerFacts(
    started=NOW - timedelta(seconds=2),
    previous=NOW - timedelta(seconds=7),
    sources={
        "a": (
            SourceOffsets(
                description="a topic",
                start_offset='{"t":{"0":10}}',
                end_offset='{"t":{"0":30}}',
                latest_offset='{"t":{"0":70}}',
                metrics={"maxOffsetsBehindLatest": "40"},
            ),
        )
    },
)


def make_slice(kind: Any, state: str, *, rows: int, size: int, partition: int = 0) -> Slice:
    owner = SliceOwner(kind, StateId(state), (0,), partition)
    return Slice(owner, first_epoch=0, last_epoch=0, epochs=1, rows=rows, latest=(0,), name="x", bytes=size)


MANIFEST = structs.replace(
    FIRST,
    epoch=3,
    streams={
        "a": StreamProgress(latest=1_772_452_800_123_456, watermark=1_772_452_790_123_456),
        "b": StreamProgress(latest=1_772_452_798_000_000, watermark=None, idle=True),
    },
    slices=(
        make_slice("index", "a", rows=5, size=100),
        make_slice("index", "a", rows=7, size=120, partition=1),
        make_slice("payload", "a", rows=5, size=1000),
        make_slice("index", "a,b@1", rows=2, size=30),
    ),
)
WORK = WorkCounts(probes=1, candidates=2, intermediate_rows=3, comparisons=4, inserted_rows=5, sent_rows=6)
REPORT = Report(
    links={"paris->oregon": LinkTraffic(900, 2, 30)},
    counts={
        "a": StreamCounts(accepted=10, late=1, null_time=2, null_key=3, future=4),
        "b": StreamCounts(accepted=1),
    },
    results=6,
    work=WORK,
    work_by_plan={"both": WORK},
    millis={"join": 1.26, "open": 0.0},
)


def progress_of(
    manifest: Manifest = MANIFEST, report: Report = REPORT, earlier: Sequence[EpochProgress] = ()
) -> EpochProgress:
    progress = EpochProgress.of(
        QueryIdentity("q", "r", None),
        manifest,
        report,
        trigger=TRIGGER,
        duration_ms={"total": 12.5, "step": 11.7},
        timestamp=NOW,
        earlier=earlier,
    )
    return replace(progress, problems=(IDLE,), events=(IDLE,))


def test_the_json_form_is_complete_and_fixed():
    form = progress_of().to_dict()
    assert json.loads(json.dumps(form)) == form
    work = {
        "probes": 1,
        "candidates": 2,
        "intermediateRows": 3,
        "comparisons": 4,
        "insertedRows": 5,
        "sentRows": 6,
        "scannedRows": 0,
    }
    none = {"late": 0, "nullTime": 0, "nullKey": 0, "future": 0}
    assert form == {
        "id": "q",
        "runId": "r",
        "name": None,
        "timestamp": "2026-03-02T12:00:00.250Z",
        "batchId": 3,
        "plan": "a b",
        "numInputRows": 21,
        "inputRowsPerSecond": 4.2,
        "processedRowsPerSecond": 10.5,
        "numOutputRows": 6,
        "numLateRows": 3,
        "numFutureRows": 4,
        "numNullKeyRows": 3,
        "durationMs": {"trigger": 2000, "total": 12, "step": 12},
        "taskMs": {"join": 1.3, "open": 0.0},
        "watermark": {"a": "2026-03-02T11:59:50.123Z", "b": None},
        "skewMs": 2123,
        "slowestStream": "b",
        "fastestStream": "a",
        "sources": {
            "a": {
                "rows": 20,
                "late": 1,
                "nullTime": 2,
                "nullKey": 3,
                "future": 4,
                "idle": False,
                "latestEventTime": "2026-03-02T12:00:00.123Z",
                "inputRowsPerSecond": 4.0,
                "processedRowsPerSecond": 10.0,
                "backlog": {"count": 40, "unit": "offsets", "trend": None},
                "offsets": [
                    {
                        "description": "a topic",
                        "startOffset": {"t": {"0": 10}},
                        "endOffset": {"t": {"0": 30}},
                        "latestOffset": {"t": {"0": 70}},
                        "metrics": {"maxOffsetsBehindLatest": "40"},
                    }
                ],
            },
            "b": {
                "rows": 1,
                **none,
                "idle": True,
                "latestEventTime": "2026-03-02T11:59:58.000Z",
                "inputRowsPerSecond": 0.2,
                "processedRowsPerSecond": 0.5,
                "backlog": None,
                "offsets": [],
            },
        },
        "state": {
            "{a}": {"rows": 12, "bytes": 1220, "slices": 3},
            "{a,b@1}": {"rows": 2, "bytes": 30, "slices": 1},
        },
        "stateBytesActive": 1250,
        "stateBytesSpilled": 0,
        "stateBytesTouched": 0,
        "memory": {"busiestPartitionBytes": None, "owedGroups": 0, "owedRows": 0, "owedSince": None},
        "links": {"paris->oregon": {"bytes": 900, "messages": 2, "rows": 30}},
        "work": {**work, "byPlan": {"both": work}},
        "migration": None,
        "replacement": None,
        "problems": [IDLE.to_dict()],
        "events": [IDLE.to_dict()],
    }


def test_the_trend_of_a_backlog_follows_from_the_progress_of_earlier_epochs():
    progress: list[EpochProgress] = []
    for _ in range(TREND_EPOCHS + 1):
        progress.append(progress_of(earlier=progress))
    trends = [p.sources["a"].backlog.trend for p in progress if p.sources["a"].backlog is not None]
    assert trends == [None] * (TREND_EPOCHS - 1) + ["steady"] * 2


def test_the_value_says_the_same_and_does_not_change():
    progress = progress_of()
    assert (progress.batch_id, progress.timestamp, progress.num_input_rows) == (3, NOW, 21)
    assert (progress.num_late_rows, progress.num_future_rows, progress.num_null_key_rows) == (3, 4, 3)
    assert progress.watermark["a"] == 1_772_452_790_123_456
    assert progress.sources["a"].null_time == 2
    assert progress.state == state_sizes(MANIFEST)
    assert progress.state[StateId("a")] == StateSize(12, 1220, 3)
    assert progress.events == (IDLE,)
    assert progress == progress_of()
    with pytest.raises(FrozenInstanceError):
        progress.batch_id = 4  # type: ignore[misc]  # that it is an error is what is tested


def test_a_stream_without_rows_counts_nothing_and_an_unknown_skew_is_null():
    streams = {**MANIFEST.streams, "b": StreamProgress()}
    form = progress_of(structs.replace(MANIFEST, streams=streams), Report()).to_dict()
    assert (form["numInputRows"], form["sources"]["b"]["rows"]) == (0, 0)
    assert (form["skewMs"], form["slowestStream"], form["fastestStream"]) == (None, None, None)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000_000, "253402300800000000 us"),
        (-(2**63), "-9223372036854775808 us"),
    ],
)
def test_event_times_outside_the_calendar_are_given_in_microseconds(micros, text):
    progress = replace(progress_of(), watermark={"a": micros})
    assert progress.to_dict()["watermark"] == {"a": text}


def test_the_phases_of_a_migration():
    migration = Migration(
        number=2,
        old_plan="a b",
        new_plan="b a",
        strategy="hybrid",
        background=True,
        isolated=False,
        start_epoch=1,
        state_ids={},
        handover={},
        latest_times={},
    )
    rebuilding = structs.replace(migration, rebuilding={StateId("a,b@2"): RebuildProgress("a", 0)})
    form = {"id": 2, "from": "a b", "to": "b a", "strategy": "hybrid", "startEpoch": 1}
    for change, phase in (
        ({"migration": migration}, "both plans"),
        ({"migration": rebuilding}, "rebuilding {a,b}"),
        ({"ended_migration": migration}, "ended"),
    ):
        progress = progress_of(structs.replace(MANIFEST, **change))
        assert progress.to_dict()["migration"] == {**form, "phase": phase}


def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter.group().lower()}", name)


def test_fields_are_those_of_the_json_form_in_snake_case():
    """With the two differences that the guide names."""
    replacement = ReplacementProgress(
        id=1, replaces="plan", strategy="s", start_epoch=3, phase="ended", caught_up=1.0, until=None
    )
    migration = MigrationProgress(
        id=1, old_plan="a b", new_plan="b a", strategy="s", start_epoch=3, phase="ended"
    )
    progress = progress_of()
    renamed = {"from": "old_plan", "to": "new_plan"}
    parts: list[Any] = [replacement, migration, *progress.sources.values()]
    for part in parts:
        given = {_snake_case(renamed.get(key, key)) for key in part.to_dict()}
        assert given == {field.name for field in fields(part)}
    of_query = {"id", "run_id", "name"}
    told = {_snake_case(key) for key in progress.to_dict()} - of_query
    assert told <= {name for name in dir(progress) if not name.startswith("_")}
