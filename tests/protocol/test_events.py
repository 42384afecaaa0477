"""Events: every kind has what the log, listeners and JSON need, and each is reported once."""

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from midstream.inline import InlineJoin
from midstream.protocol.events import (
    Event,
    FutureRows,
    MigrationEnded,
    MigrationEvent,
    MigrationStarted,
    PlanDecision,
    SinglePartitionPlan,
    StateCompleted,
    StreamActive,
    StreamEvent,
    StreamIdle,
    StreamStalled,
    events_of,
)
from midstream.protocol.settings import Settings
from midstream.state.adaptation import Adaptation, Decision
from midstream.values import Micros
from tests.helpers import rows, small_query

QUERY = small_query(["a.k = b.k"], everywhere=30)
PLANS: dict[str, Any] = {"migration": 2, "old_plan": "(a b) c", "new_plan": "a (b c)"}
EXAMPLES = (
    StreamIdle(batch_id=7, stream="a"),
    StreamActive(batch_id=7, stream="a"),
    StreamStalled(batch_id=7, stream="a"),
    FutureRows(batch_id=7, stream="a", rows=3),
    PlanDecision(
        batch_id=7,
        verdict="stay",
        reason="it saves 1%",
        plan="a b",
        cost=1234.5,
        best="b a",
        best_cost=1200.0,
        changed=("rows of a",),
    ),
    SinglePartitionPlan(batch_id=7, plan="a b c", nodes="{a,b,c}"),
    MigrationStarted(batch_id=7, **PLANS, strategy="hybrid"),
    StateCompleted(batch_id=7, **PLANS, state="b,c"),
    MigrationEnded(batch_id=7, **PLANS, epochs=4),
)


def kinds(of: type[Event] = Event) -> set[type[Event]]:
    """The kinds of events, without the types that only group some of them."""
    below = {kind for child in of.__subclasses__() for kind in kinds(child)}
    return below or {of}


def test_there_is_an_example_of_every_kind_and_all_have_names_of_their_own():
    assert {type(event) for event in EXAMPLES} == kinds()
    assert [event.type for event in EXAMPLES] == [
        "stream-idle",
        "stream-active",
        "stream-stalled",
        "future-rows",
        "decision",
        "single-partition",
        "migration-started",
        "state-completed",
        "migration-ended",
    ]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_the_json_form_has_the_type_the_epoch_the_fields_and_a_text(event):
    form = event.to_dict()
    assert json.loads(json.dumps(form)) == form
    assert (form["type"], form["batchId"]) == (event.type, 7)
    assert (form["severity"], form["message"]) == (event.severity, event.message)
    assert all(re.fullmatch("[a-z][A-Za-z]*", key) for key in form)
    assert len(form) == len(event.__struct_fields__) + len(("type", "severity", "message"))
    assert re.fullmatch(r"[a-z].*[^.]", event.message)
    with pytest.raises(AttributeError):
        event.batch_id = 8


def test_what_concerns_streams_and_scale_is_a_warning_and_plans_are_for_information():
    severities = {type(event): event.severity for event in EXAMPLES}
    warnings = {kind for kind, severity in severities.items() if severity == "warning"}
    assert kinds(StreamEvent) == {StreamIdle, StreamActive, StreamStalled, FutureRows}
    assert warnings == kinds(StreamEvent) | {SinglePartitionPlan}
    assert kinds(MigrationEvent) == {MigrationStarted, StateCompleted, MigrationEnded}


def test_the_texts():
    texts = {event.type: event.message for event in EXAMPLES}
    assert texts["stream-idle"] == "stream a is idle: state expires without waiting for it"
    assert texts["future-rows"].startswith("stream a had 3 rows further ahead than maxEventTimeAhead, which")
    assert texts["decision"] == "decided to stay: it saves 1% ('a b' costs 1,234, 'b a' 1,200 units/s)"
    assert texts["single-partition"].startswith("plan 'a b c' has {a,b,c} in one engine partition, because")
    assert texts["migration-started"] == "migration 2 started: from '(a b) c' to 'a (b c)' by hybrid"
    assert texts["state-completed"] == "migration 2: the new plan has all rows of {b,c} now"
    assert texts["migration-ended"] == "migration 2 ended after 4 epochs: the plan is 'a (b c)'"


def test_names_with_braces_are_not_taken_for_fields():
    assert StreamActive(batch_id=0, stream="{rows}").message == "stream {rows} has rows again"


def reported_events(settings: Settings, *epochs: dict[str, int]) -> list[list[tuple[str, str]]]:
    join = InlineJoin(QUERY, settings=settings)
    found = []
    for arrivals in epochs:
        before = join.manifest
        join.run_epoch({name: rows((time, 1)) for name, time in arrivals.items()}, now=100)
        events = events_of(QUERY, before, join.manifest)
        assert {event.batch_id for event in events} <= {join.manifest.epoch}
        found.append([(event.type, event.stream) for event in events if isinstance(event, StreamEvent)])
    return found


def test_a_silent_stream_stalls_after_a_window_and_is_told_of_once():
    epochs = ({"a": 0, "b": 0}, {"a": 30}, {"a": 31}, {"a": 60}, {"a": 61, "b": 61}, {"a": 62})
    assert reported_events(Settings(1, 1), *epochs) == [
        [],
        [],
        [("stream-stalled", "b")],
        [],
        [("stream-active", "b")],
        [],
    ]


def test_with_a_timeout_it_is_idle_and_one_that_was_never_there_stalls_too():
    settings = Settings(1, 1, Micros(40))
    assert reported_events(settings, {"a": 0}, {"a": 31}, {"a": 41}, {"a": 90}, {"b": 91}) == [
        [],
        [("stream-stalled", "b")],
        [("stream-idle", "b")],
        [],
        [("stream-active", "b")],
    ]


def test_without_a_window_nobody_is_waited_for():
    endless = small_query(["a.k = b.k"])
    join = InlineJoin(endless)
    before = join.manifest
    join.run_epoch({"a": rows((0, 1)), "b": rows((0, 1))})
    join.run_epoch({"a": rows((10**9, 1))})
    assert events_of(endless, before, join.manifest) == ()


def test_rows_of_the_future_are_told_of_in_each_epoch_that_has_some():
    settings = Settings(1, 1, max_event_time_ahead=Micros(10))
    assert reported_events(settings, {"a": 111, "b": 0}, {"a": 0}, {"a": 111}) == [
        [("future-rows", "a")],
        [],
        [("future-rows", "a")],
    ]


def test_a_decision_is_told_of_with_the_epoch_that_it_was_made_in_only():
    before = InlineJoin(QUERY).manifest
    decision = Decision(
        epoch=0,
        verdict="stay",
        reason="because",
        plan="a b",
        cost=2.0,
        best_plan="b a",
        best_cost=1.0,
        changed=("x",),
    )
    decided = replace(before, epoch=0, adaptation=Adaptation(last_decision=decision))
    (event,) = events_of(QUERY, before, decided)
    assert event == PlanDecision(
        batch_id=0,
        verdict="stay",
        reason="because",
        plan="a b",
        cost=2.0,
        best="b a",
        best_cost=1.0,
        changed=("x",),
    )
    assert event.to_dict()["changed"] == ["x"]
    assert events_of(QUERY, decided, replace(decided, epoch=1)) == ()
