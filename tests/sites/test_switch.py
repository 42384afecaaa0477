"""Switching over networks that fail: ten thousand schedules, and faults in the code that they must find."""

from collections import Counter
from random import Random

import pytest

from midstream.errors import InternalError
from midstream.plan.site_operators import windows_in
from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.sites import switch as switch_module
from midstream.sites.cost import StreamFigures
from midstream.sites.delivery import Delivery, Envelope, PeerState
from midstream.sites.greedy import greedy_plan
from midstream.sites.messages import FiguresReport, LocalReady, Portion, Subscribed
from midstream.sites.site_machine import SiteMachine, SiteSettings, first_state
from midstream.sites.switch import Switches
from midstream.sites.window_copies import WindowCopies
from tests.sites.schedule import EPOCHS, Faults, draw_case, run_changes, run_switches
from tests.sites.sited_cases import paper_model

CASES_PER_TEST = 50
SCHEDULES_PER_CASE = 25


@pytest.mark.parametrize("part", range(8))
def test_no_result_is_lost_repeated_or_mixed_in_ten_thousand_schedules(part):
    seen: Counter[str] = Counter()
    for number in range(part * CASES_PER_TEST, (part + 1) * CASES_PER_TEST):
        case = draw_case(Random(number))
        for seed in range(SCHEDULES_PER_CASE):
            schedule = run_switches(case, number * 1000 + seed)
            seen += schedule.counts
            seen["schedules"] += 1
            seen["in the middle"] += _switched_in_the_middle(schedule)
    assert seen["schedules"] == CASES_PER_TEST * SCHEDULES_PER_CASE
    # Nothing would be tested if no plan were replaced while rows come, or nothing went wrong meanwhile.
    assert seen["in the middle"] > seen["schedules"] / 4
    assert min(seen["lost"], seen["repeated"], seen["crashes"]) > seen["schedules"]


def _switched_in_the_middle(schedule) -> bool:
    """Whether some site has run epochs with different operators for a head."""
    return any(
        len({frozenset(schedule.ran[site, epoch].get(head, ())) for epoch in range(EPOCHS)}) > 1
        for site in schedule.machines
        for head in schedule.case.rows
    )


@pytest.mark.parametrize("update", ["distributed", "central"])
def test_sites_whose_streams_change_end_with_the_greedy_plan(update):
    """Changes are noticed, relayed or reported, decided and carried out, over the same network."""
    for number in range(60):
        case = draw_case(Random(number), coordinator=update == "central")
        for seed in range(5):
            run_changes(case, number * 1000 + seed)


def _machines(count: int, plan: SitedPlan | None = None, **more) -> dict[str, SiteMachine]:
    """The machines of the sites of S1, S2, ... in the setting of the paper."""
    model = paper_model(count, sink="N1")
    settings = SiteSettings(model=model, window=3, **more)
    figures = dict.fromkeys(model.topology.streams, StreamFigures(100.0, 0.01, 150.0))
    plan = plan or greedy_plan(model, figures)
    states = {site: first_state(settings, site, plan, figures) for site in model.topology.sites}
    return {site: SiteMachine(settings, site, state) for site, state in states.items()}


def _deliver_all(machines: dict[str, SiteMachine], network: list[Envelope]) -> Counter[str]:
    """Deliver everything, and count messages by their kinds."""
    counts: Counter[str] = Counter()
    while network:
        envelope = network.pop(0)
        counts[type(envelope.message).__name__] += 1
        network += machines[envelope.target].receive(envelope)
    return counts


@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_switch_takes_the_messages_that_the_paper_counts(count):
    """Two phases in which each affected site tells all others, 2n(n-1), and n-1 messages before them."""
    machines = _machines(count, coordinator="N1")
    backwards = tuple(
        JoinSequence(s.head, s.order[::-1], tuple(1 - p for p in s.placements))
        for s in machines["N1"].state.sequences.values()
    )
    counts = _deliver_all(machines, machines["N1"].switch_to(backwards))
    assert counts["Prepare"] == count - 1
    assert counts["LocalReady"] + counts["GlobalReady"] == 2 * count * (count - 1)
    assert all(machine.is_settled for machine in machines.values())


def test_a_switch_is_not_before_the_one_before_it():
    """N4 is ahead, so the first switch is late. The second one is none of its business."""
    names = ("S1", "S2", "S3", "S4")
    plan = SitedPlan(
        tuple(JoinSequence(head, tuple(n for n in names if n != head), (1, 1, 1)) for head in names)
    )
    others = plan.with_sequence(JoinSequence("S1", ("S2", "S3", "S4"), (1, 1, 0)))
    machines = _machines(4, others)
    ahead = machines["N4"]
    for _ in range(6):
        _deliver_all(machines, ahead.arrive("S4"))
        assert ahead.run_epoch()[0] is not None
    for placements in ((1, 1, 1), (0, 1, 1)):
        sequence = JoinSequence("S1", ("S2", "S3", "S4"), placements)
        _deliver_all(machines, machines["N1"].switch_to((sequence,)))
    assert len(ahead.state.switches.in_use["S1"]) == 2
    assert [epoch for epoch, _ in machines["N1"].state.switches.in_use["S1"]] == [0, 7, 7]


def test_what_must_not_be_asked_of_a_site():
    machines = _machines(2)
    machine = machines["N1"]
    sequence = JoinSequence("S1", ("S2",), (1 - machine.state.sequences["S1"].placements[0],))
    machine.switch_to((sequence,))
    with pytest.raises(InternalError, match="while a change of it is under way; got S1"):
        machine.switch_to((sequence,))
    report = FiguresReport("S2", StreamFigures(1.0, 0.1, 10.0))
    with pytest.raises(InternalError, match="must have messages of a relay; got FiguresReport"):
        machine.receive(Envelope("N2", "N1", 1, 0, report))


def test_only_what_is_missing_of_a_window_is_copied_and_the_newest_first():
    """N1 had a copy of S2's window until a switch; it wants one again two epochs later."""
    names = ("S1", "S2")
    at_n1 = SitedPlan((JoinSequence("S1", ("S2",), (0,)), JoinSequence("S2", ("S1",), (1,))))
    at_n2 = JoinSequence("S1", ("S2",), (1,))
    machines = _machines(2, at_n1, lead=0, portion=1)
    copied = []

    def deliver(network: list[Envelope]) -> None:
        while network:
            envelope = network.pop(0)
            if isinstance(envelope.message, Subscribed | Portion):
                copied.append(envelope.message.epochs)
            network += machines[envelope.target].receive(envelope)

    def run_epochs(count: int) -> None:
        for _ in range(count):
            for name in names:
                deliver(machines[f"N{name[1:]}"].arrive(name))
            for machine in machines.values():
                run, sent = machine.run_epoch()
                assert run is not None
                deliver(sent)

    run_epochs(5)
    deliver(machines["N1"].switch_to((at_n2,)))
    # S1's rows are joined at N2 now, and nobody needs a copy at N1; what it has is still there.
    run_epochs(2)
    deliver(machines["N1"].switch_to((at_n1.sequence("S1"),)))
    run_epochs(1)
    # A window is three epochs before the new one, 7: of 4, 5 and 6 only the last two are missing.
    assert copied == [(6,), (5,)]


def _run_many(count: int) -> None:
    for number in range(count):
        run_switches(draw_case(Random(number)), number * 1000)


def _always(value):
    return lambda *_: value


def _without_order(self, envelope):
    """Takes messages whenever they come, but each once."""
    peer = self._peer(envelope.source)
    peer.kept = [kept for kept in peer.kept if kept[0] > envelope.acknowledged]
    seen = self.__dict__.setdefault("seen", set())
    if not envelope.number or (envelope.source, envelope.number) in seen:
        return None
    seen.add((envelope.source, envelope.number))
    peer.taken = max(peer.taken, envelope.number)
    return envelope.message


def _with_repetitions(self, envelope):
    peer = self._peer(envelope.source)
    peer.kept = [kept for kept in peer.kept if kept[0] > envelope.acknowledged]
    if not 0 < envelope.number <= peer.taken + 1:
        return None
    peer.taken = max(peer.taken, envelope.number)
    return envelope.message


def _only_the_last(self, next_epoch):
    """Drops windows of operators that are still in use."""
    del next_epoch
    last = [versions[-1][1] for versions in self.state.in_use.values()]
    last += [ops for s in self.state.under_way.values() for ops in (s.operators or {}).values()]
    return {stream for operators in last for stream in windows_in(operators)}


MUTANTS = {
    "a site runs an epoch without its window": (WindowCopies, "has", _always(True)),
    "a site does not wait for the others": (Switches, "may_run", _always(True)),
    "a site is ready before its windows are": (WindowCopies, "is_prepared", _always(True)),
    "messages are taken in any order": (Delivery, "receive", _without_order),
    "messages are taken twice": (Delivery, "receive", _with_repetitions),
    "messages are not sent again": (Delivery, "resend", _always([])),
    "windows are dropped when the switch is decided": (Switches, "wanted_windows", _only_the_last),
    "the earliest of the epochs is taken": (switch_module, "max", min),
    "expired rows are asked for": (WindowCopies, "earliest", lambda self, streams, first: first),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_faults_in_the_code_are_found(name, monkeypatch):
    owner, attribute, replacement = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, replacement, raising=False)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        _run_many(500)


def test_a_network_without_faults_needs_no_second_sending():
    case = draw_case(Random(1))
    schedule = run_switches(case, 1, Faults(lost=0.0, repeated=0.0, crash=0.0))
    assert not schedule.counts


def test_deliveries_take_each_message_once_and_in_order():
    one, two = LocalReady("N1:1"), LocalReady("N1:2")
    a, b = Delivery("a", {}), Delivery("b", {})
    first, second = a.send(("b", one)), a.send(("b", two))
    assert b.receive(second) is None
    assert b.receive(first) == one
    assert b.receive(first) is None
    assert a.receive(b.acknowledge("a")) is None
    (again,) = a.resend()
    assert again.message == two
    assert b.receive(again) == two
    a.receive(b.acknowledge("a"))
    assert a.peers == {"b": PeerState(sent=2, taken=0, kept=[])}
