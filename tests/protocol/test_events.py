"""Events: every kind has what the log, listeners and JSON need, and each is reported once."""

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from midstream.inline import InlineJoin
from midstream.protocol.event import Event
from midstream.protocol.events import (
    MigrationEnded,
    MigrationEvent,
    MigrationJudged,
    MigrationStarted,
    MigrationTakenBack,
    PlanDecision,
    SinglePartitionPlan,
    StateCompleted,
    events_of,
)
from midstream.protocol.memory_events import (
    MemoryEvent,
    MigrationWaits,
    StateBroughtBack,
    StateCleanedUp,
    StateSpilled,
)
from midstream.protocol.place_events import (
    HotKeyGathered,
    HotKeySpread,
    Rescaled,
    RescaleWaits,
    StateRelocated,
)
from midstream.protocol.problems import (
    EventTimeStalled,
    FutureRows,
    LateRows,
    Problem,
    SlowEpochs,
    StateGrowing,
    StateUnbounded,
    StreamIdle,
    StreamLagging,
    StreamMissing,
    StreamStalled,
)
from midstream.protocol.replacement_events import (
    ReplacementDropped,
    ReplacementEnded,
    ReplacementLive,
    ReplacementStarted,
)
from midstream.protocol.site_events import TaskElsewhere
from midstream.state.adaptation import Adaptation, Decision
from tests.helpers import small_query

QUERY = small_query(["a.k = b.k"], default_window=30)
PLANS: dict[str, Any] = {"migration": 2, "old_plan": "(a b) c", "new_plan": "a (b c)"}
SPILLED: dict[str, Any] = {"fragment": "0: a b", "groups": 12, "bytes": 45678, "reason": "so it is"}
HOT_KEY: dict[str, Any] = {
    "key": "0",
    "hash": 1 << 63,
    "partitions": 4,
    "stream": "a",
    "share": 0.75,
    "reason": "so it is",
}
EXAMPLES = (
    StreamMissing(batch_id=7, since=7, stream="a", rows=1234),
    StreamIdle(batch_id=7, since=7, stream="a"),
    StreamStalled(batch_id=7, since=7, stream="a", silent_ms=61000),
    EventTimeStalled(batch_id=7, since=7, stream="a", behind_ms=61000),
    LateRows(batch_id=7, since=7, stream="a", rows=1000, late=125, null_time=0, share=0.125),
    FutureRows(batch_id=7, since=7, stream="a", rows=3),
    StreamLagging(batch_id=7, since=7, stream="a", backlog=4000, unit="offsets", trend="growing"),
    StateUnbounded(batch_id=7, since=7, unbounded=("a and b", "a and c"), rows=2000, bytes=80000),
    StateGrowing(batch_id=7, since=7, rows_before=100, rows=1000, windows=12),
    SlowEpochs(batch_id=7, since=7, duration_ms=1500, trigger_ms=1000),
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
    MigrationTakenBack(
        batch_id=7, migration=2, plan="a (b c)", cost=1500.0, best="(a b) c", best_cost=1234.0
    ),
    SinglePartitionPlan(batch_id=7, plan="a b c", nodes="{a,b,c}"),
    MigrationStarted(batch_id=7, **PLANS, strategy="hybrid"),
    StateCompleted(batch_id=7, **PLANS, state="b,c"),
    MigrationEnded(batch_id=7, **PLANS, epochs=4),
    MigrationJudged(
        batch_id=7,
        **PLANS,
        outcome="worse",
        predicted_cost=900.0,
        cost=1000.0,
        predicted_gain=None,
        gain=-266.0,
    ),
    StateSpilled(batch_id=7, **SPILLED),
    StateCleanedUp(batch_id=7, **SPILLED),
    StateBroughtBack(batch_id=7, **SPILLED),
    MigrationWaits(batch_id=7, plan="a (b c)"),
    ReplacementStarted(batch_id=7, replacement=1, replaces="plan", strategy="generalized_hybrid"),
    ReplacementLive(
        batch_id=7, replacement=1, replaces="plan", strategy="generalized_hybrid", until=1_500_000
    ),
    ReplacementEnded(batch_id=7, replacement=1, replaces="plan", strategy="generalized_hybrid", epochs=3),
    ReplacementDropped(batch_id=7, request=2),
    Rescaled(batch_id=7, before=2, partitions=64),
    RescaleWaits(batch_id=7, partitions=64),
    StateRelocated(batch_id=7, key="0", groups=1, bytes=45678, sender=2, receiver=0, ratio=0.25),
    HotKeySpread(batch_id=7, **HOT_KEY),
    HotKeyGathered(batch_id=7, **HOT_KEY),
    TaskElsewhere(batch_id=7, site="paris", elsewhere="oregon", tasks=2),
)


def kinds(of: type[Event] = Event) -> set[type[Event]]:
    """The kinds of events, without the types that only group some of them."""
    below = {kind for child in of.__subclasses__() for kind in kinds(child)}
    return below or {of}


def test_there_is_an_example_of_every_kind_and_all_have_names_of_their_own():
    assert {type(event) for event in EXAMPLES} == kinds()
    assert [event.type for event in EXAMPLES] == [
        "stream-missing",
        "stream-idle",
        "stream-stalled",
        "event-time-stalled",
        "late-rows",
        "future-rows",
        "stream-lagging",
        "state-unbounded",
        "state-growing",
        "slow-epochs",
        "decision",
        "migration-taken-back",
        "single-partition",
        "migration-started",
        "state-completed",
        "migration-ended",
        "migration-judged",
        "state-spilled",
        "state-cleaned-up",
        "state-brought-back",
        "migration-waits",
        "replacement-started",
        "replacement-live",
        "replacement-ended",
        "replacement-dropped",
        "rescaled",
        "rescale-waits",
        "state-relocated",
        "hot-key-spread",
        "hot-key-gathered",
        "task-elsewhere",
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


def test_problems_and_what_limits_scale_are_warnings_and_plans_are_for_information():
    severities = {type(event): event.severity for event in EXAMPLES}
    warnings = {kind for kind, severity in severities.items() if severity == "warning"}
    others = {MigrationTakenBack, SinglePartitionPlan, TaskElsewhere, ReplacementDropped}
    assert warnings == {*kinds(Problem), *others}
    assert kinds(MigrationEvent) == {MigrationStarted, StateCompleted, MigrationEnded, MigrationJudged}


def test_each_event_says_in_its_text_what_has_happened():
    texts = {event.type: event.message for event in EXAMPLES}
    assert texts["stream-idle"] == "stream a is idle: state expires without waiting for it"
    assert texts["late-rows"].startswith("stream a has many late rows: 12.5% of the last 1,000 were")
    assert texts["late-rows"].endswith("late, and were not joined; if they should be, raise its lateness")
    late = LateRows(batch_id=7, since=7, stream="a", rows=1000, late=125, null_time=5, share=0.125)
    assert "were late or, 5 of these 125, had no time, and were not joined; if those that" in late.message
    no_times = replace(late, null_time=125).message
    assert "12.5% of the last 1,000 had no time, and were not joined; give them one" in no_times
    assert "lateness" not in no_times, "it would accept none of them"
    assert texts["stream-lagging"].startswith("stream a lags behind its source: 4,000 offsets not read")
    one = StreamLagging(batch_id=7, since=7, stream="a", backlog=1, unit="files", trend="growing")
    assert one.message.startswith("stream a lags behind its source: 1 file not read yet, growing; let")
    assert texts["state-unbounded"].startswith("no window bounds a and b; a and c: rows are kept for ever")
    assert "while the event time of the others advanced by 61,000 ms; state" in texts["stream-stalled"]
    assert texts["future-rows"].startswith(
        "stream a has rows that are further ahead than maxEventTimeAhead, 3"
    )
    assert texts["decision"] == "decided to stay: it saves 1% ('a b' costs 1,234, 'b a' 1,200 units/s)"
    assert texts["single-partition"].startswith("plan 'a b c' has {a,b,c} in one engine partition, because")
    assert texts["migration-taken-back"] == (
        "migration 2 is taken back, once: 'a (b c)' costs 1,500 units/s, and '(a b) c', which it left, "
        "would cost 1,234 now"
    )
    assert texts["migration-judged"] == (
        "migration 2 turned out worse: it cost 1,000 units (estimated: 900), and 'a (b c)' takes 266 units/s "
        "more"
    )
    (judged,) = (event for event in EXAMPLES if isinstance(event, MigrationJudged))
    assert replace(judged, gain=-0.3, predicted_gain=-0.2).message.endswith("saves 0 units/s (estimated: 0)")
    assert texts["migration-started"] == "migration 2 started: from '(a b) c' to 'a (b c)' by hybrid"
    assert texts["state-completed"] == "migration 2: the new plan has all rows of {b,c} now"
    assert texts["state-spilled"] == "spilled 12 groups of fragment '0: a b', 45,678 bytes: so it is"
    assert texts["state-cleaned-up"].startswith("made what 12 groups of fragment '0: a b' owed, from 45,678")
    assert texts["state-brought-back"].endswith("owed, and brought 45,678 bytes back: so it is")
    assert texts["migration-waits"].startswith("the change to plan 'a (b c)' waits: groups that it changes")
    assert texts["rescaled"] == "the state is in 64 engine partitions now, instead of 2"
    assert texts["task-elsewhere"].startswith("tasks of site paris ran at oregon, 2 in this epoch: more goes")
    assert texts["rescale-waits"].startswith("the change to 64 engine partitions waits until rows")
    assert texts["migration-ended"] == "migration 2 ended after 4 epochs: the plan is 'a (b c)'"


def test_one_of_something_is_not_several():
    one = {MemoryEvent: {"groups": 1}, MigrationEnded: {"epochs": 1}}
    singular = [
        replace(event, **fields).message
        for event in EXAMPLES
        for kind, fields in one.items()
        if isinstance(event, kind)
    ]
    assert len(singular) == 4
    assert all(" 1 group " in m or " 1 epoch:" in m for m in singular), singular


@pytest.mark.parametrize("event", [e for e in EXAMPLES if isinstance(e, Problem)], ids=lambda e: e.type)
def test_a_problem_has_a_text_for_when_it_lasts_and_for_when_it_is_over(event):
    began, lasts = event.message, replace(event, status="continues", since=3)
    assert event.to_dict()["status"] == "began"
    assert lasts.message == f"still, since batch 3: {began}"
    over = replace(event, status="over")
    assert over.message != began
    assert over.to_dict()["message"] == over.message
    assert "{" not in over.message
    assert event.subject == ("a" if "stream" in event.to_dict() else "")


@pytest.mark.parametrize(
    ("epochs", "words"), [(0, "with the epoch that began it"), (1, "after 1 epoch"), (2, "after 2 epochs")]
)
def test_a_migration_says_how_long_it_took(epochs, words):
    event = MigrationEnded(batch_id=3, migration=1, old_plan="a b", new_plan="b a", epochs=epochs)
    assert event.message == f"migration 1 ended {words}: the plan is 'b a'"


def test_a_plan_that_is_the_best_itself_is_named_once():
    stay: dict[str, Any] = {
        "batch_id": 3,
        "verdict": "stay",
        "plan": "a b c",
        "cost": 1202.0,
        "best_cost": 1202.0,
        "changed": (),
    }
    best = PlanDecision(**stay, best="a b c", reason="the running plan is the best known")
    assert best.message == (
        "decided to stay: the running plan is the best known ('a b c' costs 1,202 units/s)"
    )
    other = PlanDecision(**stay, best="a (b c)", reason="why")
    assert other.message == "decided to stay: why ('a b c' costs 1,202, 'a (b c)' 1,202 units/s)"


def test_names_with_braces_are_not_taken_for_fields():
    event = StreamIdle(batch_id=0, since=0, status="over", stream="{rows}")
    assert event.message == "stream {rows} has rows again"


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
