"""A query that is started again with another lateness, other windows or other outputs.

What is expected is computed from a batch join by DuckDB and the definition in ``testing/expected.py``, which
knows nothing of plans and states: so whatever the plan, the results must be these.
"""

from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.errors import CheckpointError, InternalError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.runtime.crash_points import POINTS
from midstream.runtime.watermark_reset import reset_watermark
from midstream.state.expiry import Expiry
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import seize_lease
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, assert_same_rows, generate, stream
from midstream.testing.expected import Expected
from midstream.testing.faults import SimulatedCrash
from midstream.testing.random_streams import SECOND
from midstream.testing.reference import AcceptRules
from midstream.values import Micros
from tests.helpers import die_at, rows, small_query

SHAPE = Shape(rows=10, keys=3, late=0.1, lateness=Micros(4 * SECOND))
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=14, seed=8)
SETTINGS = Settings(2, 8, max_event_time_ahead=None)
SELECT = ("a.id", "b.id", "c.id", "b.v AS `v AS w`")


def ask(seconds: float, lateness: int = 4, select=SELECT, **pairs: int) -> Query:
    """The query with a window; ``ab=5`` is the window of a pair."""
    shape = replace(SHAPE, lateness=Micros(lateness * SECOND))
    return build_query(
        [stream(name, shape) for name in "abc"],
        ["a.k = b.k", "b.k2 = c.k2"],
        default_window=Micros(int(seconds * SECOND)),
        pairs={(pair[0], pair[1]): Micros(bound * SECOND) for pair, bound in pairs.items()},
        select=select,
    )


FIRST = ask(8)
CHANGES = {
    "wider": {6: ask(30)},
    "narrower": {6: ask(3)},
    "one pair wider, one narrower": {6: ask(8, ab=25, bc=2)},
    "wider and back": {5: ask(30), 10: FIRST},
    "narrower, then wider": {5: ask(2), 9: ask(40)},
    "wider in steps": {4: ask(12), 5: ask(20), 11: ask(45)},
    "longer lateness": {6: ask(8, lateness=30)},
    "shorter lateness": {6: ask(8, lateness=0), 10: ask(20, lateness=12)},
    "outputs": {3: ask(8, select=SELECT[1:3]), 6: ask(8, select=["c.id AS x", "a.id"]), 10: FIRST},
}
PLANS = ("(a b) c", "a (b c)", "a b c")
WIDEST = ask(45)


class RestartedQuery:
    """A query that is started again and again in one store, and what is expected of it."""

    def __init__(self, plan: str) -> None:
        self.store = MemoryStore()
        self.plan = plan
        self.join = self.start(FIRST)
        self.expected = Expected(WIDEST, EPOCHS)
        self.results: list[pa.Table] = []

    def start(self, query: Query) -> InlineJoin:
        self.join = InlineJoin(query, self.plan, settings=SETTINGS, store=self.store)
        return self.join

    def run_epoch(self, expects: Query) -> None:
        epoch = self.join.manifest.epoch + 1
        self.expected.begin(epoch, AcceptRules(), replace(expects, kept=FIRST.outputs))
        got = self.join.run_epoch(EPOCHS[epoch], background_epochs=1)
        self.results.append(self.expected.named_as_kept(epoch, got))

    def crash(self, point: str) -> None:
        with die_at(point), pytest.raises(SimulatedCrash):
            self.join.run_epoch(EPOCHS[self.join.manifest.epoch + 1])

    def check(self) -> None:
        """Every epoch has the results that are expected, except for what a migration defers."""
        assert fsck(self.store).problems == ()
        for epoch, got in enumerate(self.results):
            common = self.expected.common_outputs([epoch])
            want = self.expected.tables["results"][epoch].select(common)
            assert_same_rows(got.select(common), want, f"results of epoch {epoch}")
        assert sum(table.num_rows for table in self.results) > 0


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("changes", CHANGES)
def test_a_change_gives_the_same_results_whatever_the_plan(plan, changes):
    run, asked = RestartedQuery(plan), FIRST
    for epoch in range(len(EPOCHS)):
        if epoch in CHANGES[changes]:
            asked = CHANGES[changes][epoch]
            run.start(asked)
        run.run_epoch(asked)
    run.check()
    progress = run.expected.progress(len(EPOCHS) - 1)
    assert {n: s.watermark for n, s in run.join.manifest.streams.items()} == {
        name: expected.watermark for name, expected in progress.items()
    }


@pytest.mark.parametrize("point", ["after the intent is written", "after the step", "before the commit"])
@pytest.mark.parametrize("plan", PLANS)
def test_an_epoch_that_was_begun_runs_again_on_its_own_terms(plan, point):
    run, changed = RestartedQuery(plan), ask(30, lateness=9, select=SELECT[:2])
    for _ in range(6):
        run.run_epoch(FIRST)
    run.crash(point)
    run.start(changed)
    run.run_epoch(FIRST)
    run.run_epoch(changed)
    run.crash(point)
    run.start(FIRST)
    run.run_epoch(changed)
    for _ in range(4):
        run.run_epoch(FIRST)
    run.check()


@pytest.mark.parametrize("changes", ["wider", "narrower, then wider", "outputs"])
@pytest.mark.parametrize(
    ("strategy", "background"),
    [("moving_state", "auto"), ("parallel_track", "auto"), ("hybrid", "auto"), ("hybrid", "off")],
)
def test_terms_change_while_the_plan_changes(changes, strategy, background):
    run, asked = RestartedQuery("(a b) c"), FIRST
    for epoch in range(len(EPOCHS)):
        if epoch in CHANGES[changes]:
            asked = CHANGES[changes][epoch]
            run.start(asked)
        if epoch in (4, 8):
            run.join.migrate("a (b c)" if epoch == 4 else "a b c", strategy, background=background)
        run.run_epoch(asked)
    assert fsck(run.store).problems == ()
    # Results that were deferred come later, with the outputs of then: all are compared by what all have.
    epochs = range(len(EPOCHS))
    common = run.expected.common_outputs(epochs)
    files = [s for s in run.join.manifest.slices if s.owner.kind == "deferred"]
    assert not files or strategy == "parallel_track"
    waiting = sum(slice_.rows for slice_ in files)
    want = pa.concat_tables([run.expected.tables["results"][epoch].select(common) for epoch in epochs])
    got = pa.concat_tables([table.select(common) for table in run.results])
    assert got.num_rows + waiting == want.num_rows > 0
    if not waiting:
        assert_same_rows(got, want)


def small(window: int, **more) -> Query:
    select = ["a.v AS a", "b.v AS b", "c.v AS c"]
    return small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=window, select=select, **more)


@pytest.mark.parametrize("plan", PLANS)
def test_what_a_wider_window_means(plan):
    store = MemoryStore()
    join = InlineJoin(small(10), plan, store=store)
    join.run_epoch({"a": rows((85, 1, 1, "gone"), (92, 1, 1, "old")), "b": rows((100, 1, 1, "old"))})
    join.run_epoch({"c": rows((100, 2, 2, "other key")), "a": rows((104, 1, 1, "far"))})
    join = InlineJoin(small(50), plan, store=store)
    got = join.run_epoch({"c": rows((120, 1, 1, "new")), "a": rows((110, 1, 1, "new"))})
    # The watermark of c is 100: "gone" is more than 10 before it, and "far" is within 10 of all.
    assert {tuple(row.values()) for row in got.to_pylist()} == {
        ("old", "old", "new"),
        ("far", "old", "new"),
        ("new", "old", "new"),
    }


@pytest.mark.parametrize("plan", PLANS)
def test_two_rows_from_before_a_wider_window_stay_apart(plan):
    store = MemoryStore()
    join = InlineJoin(small(10, lateness=100), plan, store=store)
    join.run_epoch({"a": rows((80, 1, 1, "a")), "b": rows((100, 1, 1, "b"), (85, 1, 1, "near"))})
    got = InlineJoin(small(50, lateness=100), plan, store=store).run_epoch({"c": rows((100, 1, 1, "c"))})
    assert got.to_pylist() == [{"a": "a", "b": "near", "c": "c"}]


@pytest.mark.parametrize("plan", PLANS)
def test_a_narrower_window_holds_for_all_results_from_then_on(plan):
    store = MemoryStore()
    join = InlineJoin(small(50, lateness=100), plan, store=store)
    join.run_epoch({"a": rows((80, 1, 1, "a")), "b": rows((100, 1, 1, "b"), (85, 1, 1, "near"))})
    got = InlineJoin(small(10, lateness=100), plan, store=store).run_epoch({"c": rows((90, 1, 1, "c"))})
    assert got.to_pylist() == [{"a": "a", "b": "near", "c": "c"}]
    # It was never so wide for this pair that it would come back.
    got = InlineJoin(small(50, lateness=100), plan, store=store).run_epoch({"c": rows((90, 1, 1, "d"))})
    assert got.to_pylist() == [{"a": "a", "b": "near", "c": "d"}]


def test_changes_are_forgotten_when_the_rows_from_before_them_have_expired():
    run, asked = RestartedQuery("(a b) c"), FIRST
    kept = []
    for epoch in range(len(EPOCHS)):
        if epoch in (4, 6):
            asked = ask(30) if epoch == 4 else ask(45)
            run.start(asked)
        run.run_epoch(asked)
        kept.append([change.epoch for change in run.join.manifest.window_changes])
    assert kept[3:7] == [[], [4], [4], [4, 6]]
    assert [6] in kept
    assert kept[-1] == []


def test_statistics_of_what_the_plan_produced_begin_anew():
    run = RestartedQuery("(a b) c")
    for _ in range(5):
        run.run_epoch(FIRST)
    assert run.join.manifest.statistics.observed_seconds > 0
    run.start(ask(30))
    run.run_epoch(ask(30))
    assert run.join.manifest.statistics.observed_seconds == 0
    run.run_epoch(ask(30))
    assert run.join.manifest.statistics.observed_seconds > 0


def test_a_pair_without_a_window_may_get_one_and_not_lose_it():
    store = MemoryStore()
    InlineJoin(small_query(["a.k = b.k"]), store=store).run_epoch({"a": rows((1, 1))})
    bounded = small_query(["a.k = b.k"], default_window=10)
    InlineJoin(bounded, store=store).run_epoch({"b": rows((5, 1))})
    with pytest.raises(CheckpointError, match="must keep one: a, b had '10 microseconds'; got none"):
        InlineJoin(small_query(["a.k = b.k"]), store=store)


def test_a_window_that_a_begun_epoch_has_brought_is_not_lost_either():
    store = MemoryStore()
    InlineJoin(small_query(["a.k = b.k"]), store=store).run_epoch({"a": rows((1, 1))})
    join = InlineJoin(small_query(["a.k = b.k"], default_window=10), store=store)
    with die_at(POINTS[0]), pytest.raises(SimulatedCrash):
        join.run_epoch({"b": rows((5, 1))})
    join = InlineJoin(small_query(["a.k = b.k"]), store=store)
    join.run_epoch({"b": rows((5, 1))})
    with pytest.raises(CheckpointError, match="must keep one"):
        join.run_epoch({})


def test_a_watermark_is_set_back_by_the_windows_and_the_lateness_of_the_last_epoch():
    store = MemoryStore()
    join = InlineJoin(small(10, lateness=5), store=store)
    join.run_epoch({name: rows((100, 1, 1, name)) for name in "abc"})
    join = InlineJoin(small(50, lateness=20), store=store)
    join.run_epoch({"a": rows((10**9, 1, 1, "wrong"))})
    manifest = reset_watermark(store, seize_lease(store, "reset"), "a", 95)
    assert manifest.streams["a"].latest == 115
    assert [change.latest["a"] for change in manifest.window_changes] == [100]
    assert fsck(store).problems == ()


@pytest.mark.parametrize("mutant", [False, True])
def test_rows_that_had_expired_before_are_not_searched(monkeypatch, mutant):
    """Their payload goes when slices merge, and a plan of several stages would look for it."""
    if mutant:
        real = Expiry.is_live
        monkeypatch.setattr(Expiry, "is_live", lambda self, times, last_epoch=None: real(self, times))
    store = MemoryStore()

    def query(window: int) -> Query:
        return small_query(
            ["a.k = b.k", "b.j = c.j"], "abc", default_window=window, select=["a.v", "b.v", "c.v"]
        )

    def run() -> None:
        join = InlineJoin(query(25), "(a b) c", store=store)
        for epoch in range(22):
            if epoch == 8:
                join = InlineJoin(query(300), store=store)
            join.run_epoch({name: rows((10 * epoch, 1, 1, f"{name}{epoch}")) for name in "abc"})

    if mutant:
        with pytest.raises(InternalError, match="every reference must lead to a row"):
            run()
    else:
        run()
        assert fsck(store).problems == ()


def test_after_a_change_an_epoch_looks_at_the_rows_that_it_finds_and_not_at_all_that_are_stored(monkeypatch):
    looked_at = []
    real = Expiry.is_live

    def counting(self, times, last_epoch=None):
        looked_at.append(len(next(iter(times.values()))))
        return real(self, times, last_epoch)

    def rows_looked_at(stored: int) -> int:
        store = MemoryStore()
        join = InlineJoin(small(100), "(a b) c", store=store)
        join.run_epoch({n: rows(*((10, key, 1, "old") for key in range(stored))) for n in "abc"})
        join = InlineJoin(small(200), store=store)
        looked_at.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Expiry, "is_live", counting)
            got = join.run_epoch({"c": rows((150, 1, 1, "new"))})
        assert got.num_rows == 1
        return sum(looked_at)

    assert rows_looked_at(1000) == rows_looked_at(10) > 0
