"""A process may die at any named point, once or again and again, and nothing is lost or doubled."""

import random

import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.runtime.crash_points import POINTS, crash_hook, crash_point
from midstream.storage.fsck import check as fsck
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.testing.faults import FaultStore, SimulatedCrash
from midstream.testing.store_sink import StoreSink
from midstream.values import Micros

SHAPE = Shape(rows=12, late=0.1)
# Long enough for slices to be retired and deleted.
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=16, seed=1)
QUERY = build_query(
    [stream(name, SHAPE) for name in "abc"],
    ["a.k = b.k", "b.k2 = c.k2"],
    default_window=Micros(8_000_000),
    select=["a.id", "b.id", "c.id"],
)


@pytest.fixture
def want():
    return batch_join(QUERY, accept(QUERY, EPOCHS).tables(QUERY))


def run_through_crashes(store: FaultStore, hook) -> int:
    """Start the query again and again until it is through; gives how often it died."""
    deaths = 0
    while True:
        try:
            with crash_hook(hook):
                query = InlineJoin(QUERY, settings=Settings(2, 8), store=store, sink=StoreSink(store))
                while query.manifest.epoch + 1 < len(EPOCHS):
                    query.run_epoch(EPOCHS[query.manifest.epoch + 1])
            return deaths
        except SimulatedCrash:
            deaths += 1


@pytest.mark.parametrize("power", ["process", "machine"])
@pytest.mark.parametrize("point", POINTS)
def test_dying_at_each_point_in_every_epoch_changes_nothing(point, power, want):
    store = FaultStore(random.Random(1))
    died: set[int] = set()
    reached: list[int] = []

    def hook(here: str) -> None:
        if here != point:
            return
        reached.append(1)
        # Each time at the next occurrence, so that every epoch sees it once.
        if len(reached) not in died and len(died) < 40 and len(reached) > len(died):
            died.add(len(reached))
            if power == "machine":
                store.lose_power()
            raise SimulatedCrash(point)

    deaths = run_through_crashes(store, hook)
    assert deaths > 0, f"{point} was never reached"
    findings = fsck(store)
    assert findings.problems == ()
    assert findings.epoch == len(EPOCHS) - 1
    assert_same_rows(StoreSink(store).published(QUERY.output_schema, len(EPOCHS)), want)


def test_a_point_that_is_not_on_the_list_is_an_error():
    from midstream.errors import InternalError

    with pytest.raises(InternalError, match="must be on the list; got 'somewhere'"):
        crash_point("somewhere")
