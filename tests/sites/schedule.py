"""Sites that change their plan over a network that loses, repeats, delays and reorders, and that crash.

A schedule is drawn from a seed: which message arrives when and whether at all, when rows arrive, when a
site runs its next epoch, when it crashes, and when plans change. Then all works again, and the schedule
ends; it must end. What each site did in each epoch is then joined for real, row by row, and compared with a
join by nested loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from random import Random

import msgspec

from midstream.plan.site_operators import Operators, SiteOperator, operators_of_sequence
from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.query.network import Site
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.delivery import Envelope
from midstream.sites.greedy import greedy_plan
from midstream.sites.site_machine import SiteMachine, SiteSettings, SiteState, first_state
from midstream.testing.sited_execution import HeadRun, Work
from tests.sites.sited_cases import random_change, random_figures, random_model

EPOCHS = 7
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(SiteState).decode


@dataclass
class Case:
    """Sites, their streams, and rows with one key; schedules share it."""

    model: SiteCostModel
    settings: SiteSettings
    figures: dict[str, StreamFigures]
    rows: dict[str, list[list[tuple[int, int]]]]
    """Of each stream, epoch by epoch: a number and a key."""

    @cached_property
    def expected(self) -> Counter[tuple[int, ...]]:
        """All combinations of rows with equal keys that are no more than a window apart."""
        streams = [
            [(epoch, *row) for epoch, rows in enumerate(epochs) for row in rows]
            for epochs in self.rows.values()
        ]
        return Counter(
            tuple(number for _, number, _ in rows)
            for rows in product(*streams)
            if len({key for _, _, key in rows}) == 1 and max(rows)[0] - min(rows)[0] <= self.settings.window
        )

    @cached_property
    def plan(self) -> SitedPlan:
        """The one that the query begins with."""
        return greedy_plan(self.model, self.figures)


def draw_case(rng: Random, *, coordinator: bool = False) -> Case:
    """Two to four streams with a row or two per epoch, or none."""
    count = rng.choice([2, 3, 3, 4])
    model = random_model(rng, count)
    streams = model.topology.streams
    settings = SiteSettings(
        model=model,
        window=rng.choice([0, 1, 2, 3]),
        coordinator=rng.choice(model.topology.sites) if coordinator else None,
        threshold=0.0,
        lead=rng.choice([0, 1, 2, 4]),
        portion=rng.choice([1, 2]),
    )
    numbers = iter(range(1000))
    rows = {
        name: [
            [
                (next(numbers), rng.randrange(2))
                for _ in range(rng.choice([0, 1, 1, 2] if count < 4 else [0, 1]))
            ]
            for _ in range(EPOCHS)
        ]
        for name in streams
    }
    return Case(model, settings, {name: random_figures(rng) for name in streams}, rows)


@dataclass(frozen=True)
class Faults:
    """How much goes wrong, as probabilities."""

    lost: float = 0.15
    repeated: float = 0.1
    crash: float = 0.04


USUAL_FAULTS = Faults()


@dataclass
class Schedule:
    """One run of all sites; those that are down do nothing, and what is sent to them is lost."""

    case: Case
    rng: Random
    faults: Faults = USUAL_FAULTS
    machines: dict[Site, SiteMachine] = field(init=False)
    network: list[Envelope] = field(default_factory=list)
    arrived: dict[str, int] = field(init=False)
    cut: frozenset[Site] = frozenset()
    """Two sites that do not hear of each other until all works again."""
    down: dict[Site, int] = field(default_factory=dict)
    """For how many steps a site is down."""
    ran: dict[tuple[Site, int], dict[str, Operators]] = field(default_factory=dict)
    """What a site did in an epoch."""
    held: dict[tuple[Site, int], dict[str, set[int]]] = field(default_factory=dict)
    """Which epochs of which streams it had then."""
    wanted: dict[str, list[JoinSequence]] = field(init=False)
    """All sequences that each head has had."""
    counts: Counter[str] = field(default_factory=Counter)
    """What has happened."""

    def __post_init__(self) -> None:
        case, settings = self.case, self.case.settings
        self.machines = {
            site: SiteMachine(settings, site, first_state(settings, site, case.plan, case.figures))
            for site in case.model.topology.sites
        }
        self.arrived = dict.fromkeys(case.rows, 0)
        self.wanted = {sequence.head: [sequence] for sequence in case.plan.sequences}

    def step(self) -> None:
        """Let something happen."""
        roll = self.rng.random()
        if roll < 0.55 and self.network:
            position, what = self.rng.randrange(len(self.network)), self.rng.random()
            if what < self.faults.repeated:
                self.repeat(position)
            elif what < self.faults.repeated + self.faults.lost:
                self.lose(position)
            else:
                self.deliver(position)
        elif roll < 0.7:
            self.arrive(self.rng.choice([*self.arrived]))
        elif roll < 0.9:
            self.run(self.rng.choice([*self.machines]))
        elif roll < 0.9 + self.faults.crash:
            self.crash(self.rng.choice([*self.machines]), self.rng.randint(1, 15))
        else:
            self.resend(self.rng.choice([*self.machines]))
        for site in list(self.down):
            self.down[site] -= 1
            if not self.down[site]:
                del self.down[site]

    def deliver(self, position: int) -> None:
        """A message arrives, whichever was sent before it."""
        self._arrives(self._take(position))

    def repeat(self, position: int) -> None:
        """A message arrives, and will once more."""
        self.counts["repeated"] += 1
        self._arrives(self.network[position])

    def lose(self, position: int) -> None:
        """A message is lost."""
        self.counts["lost"] += 1
        self._take(position)

    def _take(self, position: int) -> Envelope:
        envelope = self.network[position]
        self.network[position] = self.network[-1]
        self.network.pop()
        return envelope

    def _arrives(self, envelope: Envelope) -> None:
        if envelope.target in self.down or self.cut == {envelope.source, envelope.target}:
            self.counts["lost"] += 1
        else:
            self.network += self.machines[envelope.target].receive(envelope)

    def arrive(self, stream: str) -> None:
        """The rows of the stream's next epoch come to its site."""
        site = self.case.model.topology.site_of[stream]
        if self.arrived[stream] < EPOCHS and site not in self.down:
            self.arrived[stream] += 1
            self.network += self.machines[site].arrive(stream)

    def run(self, site: Site) -> bool:
        """A site runs its next epoch, if it can."""
        machine = self.machines[site]
        if site in self.down or machine.state.next_epoch == EPOCHS:
            return False
        windows = machine.state.windows
        held = {name: set(range(own.oldest, own.end)) for name, own in windows.own.items()}
        held |= {name: set(copy.held) for name, copy in windows.copies.items()}
        run, sent = machine.run_epoch()
        self.network += sent
        if run is None:
            return False
        self.ran[site, run.epoch], self.held[site, run.epoch] = run.operators, held
        return True

    def crash(self, site: Site, steps: int) -> None:
        """What the site has not kept is gone, and what it was about to send, if nobody has it yet."""
        self.counts["crashes"] += 1
        state = _DECODE(_ENCODE(self.machines[site].state))
        self.machines[site] = SiteMachine(self.case.settings, site, state)
        self.down[site] = steps
        if self.rng.random() < 0.5:
            self.network = [envelope for envelope in self.network if envelope.source != site]

    def switch(self, head: str, sequence: JoinSequence) -> bool:
        """Change the sequence of a head, unless its site is down or has not done with the last change."""
        site = self.case.model.topology.site_of[head]
        if site in self.down or head in self.machines[site].state.relay.busy:
            return False
        self.wanted[head].append(sequence)
        self.network += self.machines[site].switch_to((sequence,))
        return True

    def resend(self, site: Site) -> None:
        """A site sends again what nobody has acknowledged."""
        if site not in self.down:
            self.network += self.machines[site].resend()

    def finish(self) -> None:
        """Nothing goes wrong any more: everything must come to its end."""
        self.down.clear()
        self.cut = frozenset()
        for _ in range(60):
            for site in self.machines:
                self.resend(site)
            on_the_way = 0
            while self.network and on_the_way < 10_000:
                envelope = self.network.pop(0)
                self.network += self.machines[envelope.target].receive(envelope)
                on_the_way += 1
            for stream in self.arrived:
                self.arrive(stream)
            moved = [self.run(site) for site in self.machines]
            if on_the_way == 10_000:
                break
            if self.network or any(moved) or min(self.arrived.values()) < EPOCHS:
                continue
            if all(m.is_settled and m.state.next_epoch == EPOCHS for m in self.machines.values()):
                return
        raise AssertionError("the schedule does not end")

    def check(self) -> None:
        """No result is lost, repeated, or made by a mix of two plans."""
        self.check_plans()
        self.check_results()
        for sequences in self.wanted.values():
            self.check_in_use(sequences[-1])

    def check_in_use(self, sequence: JoinSequence) -> None:
        """All sites have come to a sequence in the end."""
        sets = operators_of_sequence(sequence, self.case.model.topology)
        for site, machine in self.machines.items():
            in_use = machine.state.switches.in_use[sequence.head][-1][1]
            assert frozenset(in_use) == frozenset(sets.get(site, ()))

    def check_plans(self) -> None:
        """The sites did in each epoch what one sequence says, for each head."""
        known = {
            head: [_as_sets(operators_of_sequence(s, self.case.model.topology)) for s in sequences]
            for head, sequences in self.wanted.items()
        }
        for head, sequences in known.items():
            for epoch in range(EPOCHS):
                done = _as_sets(self._operators(head, epoch))
                assert done in sequences, f"{head} in epoch {epoch}: a mix of two plans"

    def check_results(self) -> None:
        """They are those of the join by nested loops, each once."""
        found: Counter[tuple[int, ...]] = Counter()
        for head, epochs in self.case.rows.items():
            for epoch, rows in enumerate(epochs):
                found.update(self._results(head, epoch, rows, self._operators(head, epoch)))
        assert sum(found.values()) == sum(self.case.expected.values())
        assert found == self.case.expected

    def _operators(self, head: str, epoch: int) -> dict[Site, Operators]:
        """What each site did for a head, if anything."""
        ran = ((site, self.ran[site, epoch].get(head, ())) for site in self.machines)
        return {site: operators for site, operators in ran if operators}

    def _results(
        self, head: str, epoch: int, rows: list[tuple[int, int]], operators: dict[Site, Operators]
    ) -> Iterator[tuple[int, ...]]:
        if not rows:
            return
        first = epoch - self.case.settings.window

        def window_at(site: Site, stream: str) -> list[tuple[int, tuple[int, int]]]:
            held = self.held[site, epoch].get(stream, ())
            return [(e, row) for e in held if first <= e <= epoch for row in self.case.rows[stream][e]]

        run = HeadRun(
            topology=self.case.model.topology,
            joins=lambda stream, rows: rows[stream][1] == rows[head][1],
            row_bytes=dict.fromkeys(self.case.rows, 1.0),
            operators=operators,
            window_at=window_at,
            work=Work(),
        )
        for result in run.results(head, epoch, rows):
            yield tuple(result[stream][0] for stream in self.case.rows)


def _as_sets(operators: dict[Site, Operators]) -> dict[Site, frozenset[SiteOperator]]:
    """Two orders of the same operators are the same."""
    return {site: frozenset(each) for site, each in operators.items()}


def random_sequence(rng: Random, case: Case, head: str) -> JoinSequence:
    """Any order and placements."""
    others = [name for name in case.rows if name != head]
    rng.shuffle(others)
    return JoinSequence(head, tuple(others), tuple(rng.randrange(2) for _ in others))


def run_switches(case: Case, seed: int, faults: Faults = USUAL_FAULTS) -> Schedule:
    """Sequences of some heads change, to any others, one after the other and at the same time."""
    rng = Random(seed)
    schedule = Schedule(case, rng, faults)
    if faults.lost and len(schedule.machines) > 1 and rng.random() < 0.2:
        schedule.cut = frozenset(rng.sample([*schedule.machines], 2))
    again = rng.choice([0.0, 0.1, 0.5])
    for number in range(rng.randint(40, 120)):
        schedule.step()
        head = rng.choice([*case.rows])
        if number >= 10 and rng.random() < (0.02 if len(schedule.wanted[head]) == 1 else again):
            schedule.switch(head, random_sequence(rng, case, head))
    schedule.finish()
    schedule.check()
    return schedule


def run_changes(case: Case, seed: int) -> Schedule:
    """Figures of streams change, and the sites find other plans and change to them."""
    rng = Random(seed)
    schedule = Schedule(case, rng)
    figures, topology = dict(case.figures), case.model.topology
    for _ in range(rng.randint(1, 3)):
        stream, new = random_change(rng, figures)
        site = topology.site_of[stream]
        if site not in schedule.down:
            figures[stream] = new
            schedule.network += schedule.machines[site].observe(stream, new)
        for _ in range(rng.randint(10, 60)):
            schedule.step()
    schedule.finish()
    schedule.check_results()
    for sequence in greedy_plan(case.model, figures).sequences:
        schedule.check_in_use(sequence)
    return schedule
