"""State that grows with every window is told of; state that goes up and down is not."""

from dataclasses import replace

import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.protocol.health import GROWTH_STEPS, SAMPLE_WINDOWS, Health, StateSample
from midstream.protocol.problems import StateGrowing
from midstream.query.query import Query
from midstream.testing.hypothesis_aggregates import with_aggregation
from tests.helpers import rows
from tests.protocol.watched import BASE, NOW, QUERY, WINDOW, Told, Watched


def grown(query: Query, epochs: int, *, per_epoch: int, silent: str = "") -> list[Told]:
    watched = Watched(query)
    events = []
    for epoch in range(epochs):
        table = rows(*((per_epoch * epoch, i) for i in range(5)))
        events += watched.run({name: table for name in "ab" if epoch < 5 or name not in silent})
    return events


@pytest.mark.parametrize("per_epoch", [6, 10, 100])
def test_state_that_goes_up_and_down_does_not_grow_without_end(per_epoch):
    assert grown(QUERY, 20 * WINDOW // per_epoch + 20, per_epoch=per_epoch) == []


def test_groups_that_are_kept_until_their_window_is_complete_are_no_growth_without_end():
    aggregation = read_aggregation(["a.k AS k", window("1 day")], ["count(*) AS n"], QUERY.streams)
    watched = Watched(with_aggregation(QUERY, aggregation))
    told = []
    for time in range(0, 20 * SAMPLE_WINDOWS * WINDOW, 10):
        table = rows(*((time, time + i) for i in range(5)))
        told += watched.run({"a": table, "b": table})
    assert sum(s.rows for s in watched.join.manifest.slices if s.owner.kind == "partial") == 5 * 240
    assert told == []


def test_state_that_grows_with_every_window_does():
    needed = (GROWTH_STEPS + 2) * SAMPLE_WINDOWS * WINDOW // 10
    assert grown(QUERY, needed + 10, per_epoch=10, silent="b") == [
        ("stream-stalled", "b", "began"),
        ("state-growing", "", "began"),
    ]


def test_growth_that_lasts_may_be_by_a_smaller_share_and_is_over_when_there_is_none():
    window = SAMPLE_WINDOWS * WINDOW
    sizes = [100, 120, 150, 200]
    samples = tuple(StateSample(-window * (len(sizes) - i), size) for i, size in enumerate(sizes))
    health, events = Health(samples=samples).after(BASE, NOW)
    assert [(type(e), e.to_dict()["rowsBefore"], e.to_dict()["rows"]) for e in events] == [
        (StateGrowing, 100, 200)
    ]
    _, lasts = replace(health, samples=(*samples, StateSample(-window, 201))).after(BASE, NOW)
    assert lasts == ()
    _, ended = replace(health, samples=(*samples, StateSample(-window, 200))).after(BASE, NOW)
    assert [e.status for e in ended] == ["over"]
    small = replace(health, lasting={}, samples=(*samples[:-1], StateSample(-window, 160)))
    assert small.after(BASE, NOW)[1] == ()
