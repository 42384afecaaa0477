"""Deciding beside the epochs: verdicts that come late, are dropped, or outlive the driver that had them."""

from __future__ import annotations

import threading
from dataclasses import replace as replace_fields

import pytest
from msgspec.structs import replace

from midstream.inline import InlineJoin
from midstream.plan.default_plan import default_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.intent import BEFORE_VERDICTS, encode_intent
from midstream.protocol.settings import Settings
from midstream.runtime.plan_decider import (
    Decide,
    SynchronousDecider,
    ThreadedDecider,
    TimedDecision,
    timed_decision,
)
from midstream.state.adaptation import Adaptation, Decision, Verdict
from midstream.state.manifest import Manifest
from midstream.storage.intents import find_intent, intent_name
from midstream.storage.memory_store import MemoryStore
from midstream.testing import assert_same_rows
from midstream.testing.faults import SimulatedCrash
from tests.adapt.synthetic_streams import clique, epochs_of, query_of, uniform
from tests.helpers import die_at

QUERY = query_of("abc", clique("abc"), window=8)
DEAR = "(b c) a"
ADAPTING = Settings(1, 1, adapt=True)
EPOCHS = epochs_of(
    dict.fromkeys("abc", 16.0), {"a": uniform(400), "b": uniform(20), "c": uniform(20)}, 12, 2.0
)
VERDICT = Verdict(3, Adaptation(requested_plan="x"))


class Held:
    """Decides from the first manifest that calls for a change, and gives the verdict when it is told to."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.manifest: Manifest | None = None
        self.gives = False

    def begin(self, manifest: Manifest) -> None:
        verdict = self.decide(manifest) if self.manifest is None else None
        if verdict is not None and verdict.migration is not None:
            self.manifest = manifest

    def take(self) -> TimedDecision | None:
        if self.manifest is None or not self.gives:
            return None
        manifest, self.manifest = self.manifest, None
        return timed_decision(self.decide, manifest)

    def close(self) -> None:
        pass


def held_run(store: MemoryStore) -> tuple[InlineJoin, Held]:
    """A query that has a verdict, which is not there yet, and one more epoch after it."""
    made: list[Held] = []

    def make(decide: Decide) -> Held:
        made.append(Held(decide))
        return made[0]

    join = InlineJoin(QUERY, DEAR, settings=ADAPTING, store=store, decider=make)
    while made[0].manifest is None:
        join.run_epoch(EPOCHS[join.manifest.epoch + 1])
    join.run_epoch(EPOCHS[join.manifest.epoch + 1])
    assert join.manifest.adaptation == Adaptation()
    assert join.manifest.plan == DEAR
    return join, made[0]


def next_epoch(join: InlineJoin) -> None:
    join.run_epoch(EPOCHS[join.manifest.epoch + 1])


def crash_in_next_epoch(join: InlineJoin, point: str) -> None:
    with pytest.raises(SimulatedCrash), die_at(point):
        next_epoch(join)


def started(manifest: Manifest) -> int | None:
    """The epoch in which a migration of this manifest began."""
    migration = manifest.migration or manifest.ended_migration
    return None if migration is None else migration.start_epoch


def test_a_late_verdict_is_carried_out_and_committed_by_the_first_epoch_after_it():
    join, decider = held_run(MemoryStore())
    decider.gives = True
    next_epoch(join)
    decision = join.manifest.adaptation.last_decision
    assert decision is not None
    assert (decision.verdict, decision.epoch) == ("migrate", join.manifest.epoch - 2)
    assert started(join.manifest) == join.manifest.epoch


def test_a_verdict_is_dropped_if_a_plan_is_requested_meanwhile():
    join, decider = held_run(MemoryStore())
    join.migrate("(a c) b", "moving_state")
    decider.gives = True
    next_epoch(join)
    assert join.manifest.plan == "(a c) b"
    assert join.manifest.adaptation.last_decision is None


def test_a_verdict_is_dropped_if_a_plan_was_requested_before_it_came():
    join, decider = held_run(MemoryStore())
    # Another plan and back: the plan that runs is the one that was compared.
    for plan in ("(a c) b", DEAR):
        join.migrate(plan, "moving_state")
        next_epoch(join)
    decider.gives = True
    next_epoch(join)
    assert (join.manifest.plan, join.manifest.migrations) == (DEAR, 2)
    assert join.manifest.adaptation.last_decision is None


def test_a_verdict_that_was_written_down_outlives_its_driver_and_the_option():
    store = MemoryStore()
    join, decider = held_run(store)
    decider.gives = True
    crash_in_next_epoch(join, "before the step")
    restarted = InlineJoin(QUERY, settings=Settings(1, 1), store=store)
    next_epoch(restarted)
    assert started(restarted.manifest) == restarted.manifest.epoch
    assert restarted.manifest.adaptation.last_decision is not None


def test_a_driver_that_dies_while_it_decides_has_decided_nothing():
    store = MemoryStore()
    join, _ = held_run(store)
    crash_in_next_epoch(join, "before the commit")
    # The epoch was begun without a verdict, and stays so; the next one has a new one.
    restarted = InlineJoin(QUERY, settings=ADAPTING, store=store)
    next_epoch(restarted)
    assert restarted.manifest.migrations == 0
    next_epoch(restarted)
    assert started(restarted.manifest) == restarted.manifest.epoch
    decision = restarted.manifest.adaptation.last_decision
    assert decision is not None
    assert decision.epoch == restarted.manifest.epoch - 1


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_manifest_before_format_7_has_decided_is_carried_out(begun):
    store = MemoryStore()
    join = InlineJoin(QUERY, DEAR, settings=Settings(1, 1), store=store)
    for epoch in EPOCHS[:2]:
        join.run_epoch(epoch)
    decision = Decision(
        epoch=1, verdict="migrate", reason="it is so", plan=DEAR, cost=9.0, best_plan="(a b) c", best_cost=1.0
    )
    decided = Adaptation(last_decision=decision, cooldown_until=1000.0)
    join._runner.manifest = replace(join.manifest, adaptation=decided)
    if begun:
        intent = replace(join._runner.new_intent(0, None), format=BEFORE_VERDICTS)
        store.put(intent_name(2), encode_intent(intent))
    else:
        adapting = Coordinator(QUERY, ADAPTING)
        join._runner._decider = SynchronousDecider(adapting.decide)
        join._runner._decider.begin(join.manifest)
    next_epoch(join)
    assert started(join.manifest) == 2
    assert join.manifest.adaptation.last_decision == decision
    next_epoch(join)
    assert join.manifest.migrations == 1


def test_nothing_is_decided_from_statistics_of_other_windows():
    coordinator = Coordinator(QUERY, ADAPTING)
    join = InlineJoin(QUERY, DEAR, settings=Settings(1, 1))
    for epoch in EPOCHS:
        join.run_epoch(epoch)
    assert coordinator.decide(join.manifest) is not None
    wider = Coordinator(query_of("abc", clique("abc"), window=9), ADAPTING)
    assert wider.decide(join.manifest) is None
    assert replace_fields(coordinator, settings=Settings(1, 1)).decide(join.manifest) is None


def test_late_verdicts_change_no_result():
    late, _ = held_run(MemoryStore())
    late._runner._decider.gives = True  # type: ignore[attr-defined]
    at_once = InlineJoin(QUERY, DEAR, settings=ADAPTING)
    for epoch in EPOCHS[: late.manifest.epoch + 1]:
        at_once.run_epoch(epoch)
    for epoch in EPOCHS[late.manifest.epoch + 1 :]:
        assert_same_rows(late.run_epoch(epoch), at_once.run_epoch(epoch))
    assert late.manifest.migrations == at_once.manifest.migrations == 1


def initial_manifest() -> Manifest:
    return Coordinator(QUERY, ADAPTING).initial_manifest("q", default_plan(QUERY))


def deciding_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "midstream deciding"]


class Gate:
    """A decision that waits until it may be made."""

    def __init__(self, verdict: Verdict | None = VERDICT) -> None:
        self.opened = threading.Event()
        self.verdict = verdict
        self.decided_from: list[int] = []

    def __call__(self, manifest: Manifest) -> Verdict | None:
        self.opened.wait(60)
        self.decided_from.append(manifest.epoch)
        return self.verdict


def taken(decider: ThreadedDecider) -> TimedDecision:
    """What a thread has decided, once it is done."""
    assert decider._thread is not None
    decider._thread.join(60)
    decided = decider.take()
    assert decided is not None
    return decided


def test_a_thread_gives_its_verdict_once_it_is_there_and_once():
    gate, manifest = Gate(), initial_manifest()
    decider = ThreadedDecider(gate)
    assert decider.take() is None
    decider.begin(manifest)
    decider.begin(replace(manifest, epoch=7))
    assert decider.take() is None
    gate.opened.set()
    decided = taken(decider)
    assert (decided.verdict, decided.manifest) == (VERDICT, manifest)
    assert decided.millis > 0
    assert decider.take() is None
    decider.begin(replace(manifest, epoch=8))
    assert taken(decider).manifest.epoch == 8
    assert gate.decided_from == [-1, 8]


@pytest.mark.parametrize(("verdict", "begins_again"), [(VERDICT, False), (None, True)])
def test_a_verdict_waits_until_it_is_taken_but_an_empty_one_does_not(verdict, begins_again):
    gate = Gate(verdict)
    gate.opened.set()
    decider = ThreadedDecider(gate)
    for epoch in (1, 2):
        decider.begin(replace(initial_manifest(), epoch=epoch))
        assert decider._thread is not None
        decider._thread.join(60)
    assert taken(decider).manifest.epoch == (2 if begins_again else 1)


def test_no_thread_outlives_its_query():
    gate = Gate()
    decider = ThreadedDecider(gate)
    decider.begin(initial_manifest())
    assert deciding_threads()
    threading.Timer(0.05, gate.opened.set).start()
    decider.close()
    assert not deciding_threads()
    decider.begin(initial_manifest())
    assert not deciding_threads()


def test_an_error_while_deciding_is_raised_with_the_next_epoch():
    def fail(_: Manifest) -> Verdict | None:
        raise ZeroDivisionError

    decider = ThreadedDecider(fail)
    decider.begin(initial_manifest())
    assert decider._thread is not None
    decider._thread.join(60)
    with pytest.raises(ZeroDivisionError):
        decider.take()


def test_the_progress_says_how_long_deciding_took():
    join = InlineJoin(QUERY, DEAR, settings=ADAPTING)
    for epoch in EPOCHS[:8]:
        join.run_epoch(epoch)
    assert max(p["durationMs"]["decide"] for p in join.recentProgress) > 0
    assert find_intent(join.store, 7) is not None
