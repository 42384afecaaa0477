"""Distributed modification ends in the greedy plan, as central modification does, for every change."""

from collections import Counter, deque
from random import Random

import pytest

from midstream.errors import InternalError
from midstream.plan.sited_plan import JoinSequence
from midstream.sites.cost import StreamFigures
from midstream.sites.greedy import greedy_plan, greedy_sequence
from midstream.sites.messages import LocalReady, Outgoing, SequencesDecided
from midstream.sites.relay import Relay, RelayState
from midstream.sites.thresholds import exceeds
from tests.sites.sited_cases import paper_model, random_change, random_figures, random_model


class Relays:
    """The relays of all sites, with messages that arrive in any order."""

    def __init__(self, model, figures, rng: Random | None = None) -> None:
        self.rng = rng
        self.sequences = {s.head: s for s in greedy_plan(model, figures).sequences}
        self.relays = {}
        self.queue: deque[Outgoing] = deque()
        self.counts: Counter[str] = Counter()
        for site in model.topology.sites:
            own = model.topology.streams_at(site)
            state = RelayState({name: figures[name] for name in own})
            self.relays[site] = Relay(model, state, self.sequences)

    def publish(self, site, stream, figures) -> None:
        self.queue += self.relays[site].publish(stream, figures)

    def step(self) -> None:
        if self.rng is not None:
            self.queue.rotate(self.rng.randrange(len(self.queue)))
        site, message = self.queue.popleft()
        self.counts[type(message).__name__] += 1
        if isinstance(message, SequencesDecided):
            (sequence,) = message.sequences
            self.sequences[sequence.head] = sequence
            self.queue += self.relays[site].finished(sequence.head)
        else:
            self.queue += self.relays[site].handle(message)

    def settle(self) -> dict[str, JoinSequence]:
        while self.queue:
            self.step()
        return self.sequences


@pytest.mark.parametrize("seed", range(400))
def test_one_change_leads_to_the_greedy_plan(seed):
    rng = Random(seed)
    model = random_model(rng, rng.randint(2, 8))
    figures = {name: random_figures(rng) for name in model.topology.site_of}
    relays = Relays(model, figures)
    for _ in range(3):
        stream, new = random_change(rng, figures)
        figures[stream] = new
        relays.publish(model.topology.site_of[stream], stream, new)
        plan = greedy_plan(model, figures)
        assert relays.settle() == {s.head: s for s in plan.sequences}


@pytest.mark.parametrize("seed", range(100))
def test_changes_that_overtake_each_other_lead_to_the_greedy_plan(seed):
    """Several streams change at once, and again while relays are under way; messages come in any order."""
    rng = Random(seed)
    model = random_model(rng, rng.randint(2, 6))
    figures = {name: random_figures(rng) for name in model.topology.site_of}
    relays = Relays(model, figures, rng)
    for _ in range(rng.randint(2, 6)):
        stream, new = random_change(rng, figures)
        figures[stream] = new
        relays.publish(model.topology.site_of[stream], stream, new)
        for _ in range(rng.randint(0, 30)):
            if relays.queue:
                relays.step()
    plan = greedy_plan(model, figures)
    assert relays.settle() == {s.head: s for s in plan.sequences}


def _own_cost_changes(model, old, new, sequence, stream) -> bool:
    """The condition of the printed algorithm: the cost of the stream's own join has changed."""
    costs = []
    for figures in (old, new):
        flow = model.start(sequence.head, figures[sequence.head])
        for name, placement in zip(sequence.order, sequence.placements, strict=True):
            if name == stream:
                costs.append(model.step(flow, name, figures[name]).priority)
            flow = model.join(flow, name, figures[name], placement)
    return len(set(costs)) > 1


def test_the_gaps_of_the_printed_algorithm_are_there():
    """A head is not part of its own sequence, and a size may matter only to what comes after."""
    rng, model = Random(6), paper_model(5)
    of_the_head = of_what_follows = 0
    for _ in range(400):
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        before = greedy_sequence(model, figures, "S1")
        faster = {**figures, "S1": StreamFigures(170.0, 0.02, 400.0)}
        of_the_head += before != greedy_sequence(model, faster, "S1")
        old = figures["S2"]
        wider = {**figures, "S2": StreamFigures(old.rate, old.selectivity, 2000.0)}
        if before != greedy_sequence(model, wider, "S1"):
            of_what_follows += not _own_cost_changes(model, figures, wider, before, "S2")
    assert of_the_head > 50
    assert of_what_follows > 5


def test_a_relay_asks_only_what_it_must():
    """Example 3: S2 is at the first position, so it is asked first, and then everything after it."""
    model = paper_model(3)
    figures = {name: StreamFigures(100.0, 0.01, 150.0) for name in model.topology.site_of}
    relays = Relays(model, figures)
    assert relays.sequences["S1"].order == ("S2", "S3")
    figures["S2"] = StreamFigures(300.0, 0.01, 150.0)
    relays.publish("N2", "S2", figures["S2"])
    relays.settle()
    assert relays.sequences["S1"].order == ("S3", "S2")
    # S1 and S3 seek from the first position until S2 has its turn, and select two positions; so does S2.
    assert relays.counts["Changed"] == relays.counts["SequencesDecided"] == 3
    assert relays.counts["Select"] <= 9
    assert relays.counts["Seek"] <= 4


def test_relays_know_their_messages():
    model = paper_model(2)
    figures = {name: StreamFigures(1.0, 0.1, 10.0) for name in model.topology.site_of}
    with pytest.raises(InternalError, match="must have messages of a relay; got LocalReady"):
        Relays(model, figures).relays["N1"].handle(LocalReady("N1:1"))


def test_thresholds_are_shares_of_each_figure():
    known = StreamFigures(100.0, 0.01, 150.0)
    assert not exceeds(known, known, 0.0)
    assert not exceeds(known, StreamFigures(120.0, 0.01, 150.0), 0.2)
    assert exceeds(known, StreamFigures(121.0, 0.01, 150.0), 0.2)
    assert exceeds(known, StreamFigures(100.0, 0.0079, 150.0), 0.2)
    assert exceeds(known, StreamFigures(100.0, 0.01, 181.0), 0.2)
    assert exceeds(StreamFigures(0.0, 0.01, 150.0), StreamFigures(1.0, 0.01, 150.0), 5.0)
