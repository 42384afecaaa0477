import pyarrow as pa
import pytest

from midstream.errors import CheckpointError, FencedError, PlanError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore
from tests.helpers import rows, small_query

QUERY = small_query(["a.k = b.k"], default_window=10, select=["a.v as left", "b.v as right"])


def pairs(table: pa.Table) -> list[tuple[str, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_rows_meet_within_an_epoch_and_across_epochs_once():
    join = InlineJoin(QUERY)
    first = join.run_epoch({"a": rows((0, 1, 0, "x")), "b": rows((5, 1, 0, "y"))})
    second = join.run_epoch({"b": rows((10, 1, 0, "z"), (10, 2, 0, "no"))})
    third = join.run_epoch({"a": rows((1, 1, 0, "w"), (20, 1, 0, "late for y"))})
    assert pairs(first) == [("x", "y")]
    assert pairs(second) == [("x", "z")]
    assert pairs(third) == [("late for y", "z"), ("w", "y"), ("w", "z")]
    assert join.manifest.results == 5


def test_an_epoch_without_rows_is_an_epoch():
    join = InlineJoin(QUERY)
    assert join.run_epoch({}).num_rows == 0
    assert join.run_epoch({"a": rows()}).schema == QUERY.output_schema
    assert join.manifest.epoch == 1


def test_late_and_timeless_rows_are_handed_out_with_all_their_columns():
    join = InlineJoin(QUERY)
    join.run_epoch({"a": rows((100, 1, 0, "x"))})
    join.run_epoch({"a": rows((99, 1, 7, "late"), (None, 1, 7, "no time"), (100, 1, 7, "in time"))})
    late = pa.concat_tables(join.late["a"])
    assert sorted(late.column("a.v").to_pylist()) == ["late", "no time"]
    assert late.column("a.j").to_pylist() == [7, 7]
    assert join.manifest.streams["a"].late == join.manifest.streams["a"].null_time == 1


def test_results_come_in_the_order_of_their_latest_row():
    query = small_query(["a.k = b.k"], select=["a.t"])
    times = [5, 3, 9, 1, 7]
    arrivals = {"a": rows(*((t, 1) for t in times)), "b": rows((0, 1))}
    got = InlineJoin(query, settings=Settings(1, 1)).run_epoch(arrivals)
    assert got.column(0).cast(pa.int64()).to_pylist() == sorted(times)


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_used_store_goes_on_where_it_stopped(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(str(tmp_path))
    InlineJoin(QUERY, store=store).run_epoch({"a": rows((0, 1, 0, "x"))})
    again = InlineJoin(QUERY, store=store)
    assert again.manifest.epoch == 0
    assert pairs(again.run_epoch({"b": rows((0, 1, 0, "y"))})) == [("x", "y")]


def test_a_used_store_keeps_its_plan_and_refuses_another_query():
    query = small_query(["a.k = b.k", "b.k = c.k"], "abc")
    store = MemoryStore()
    InlineJoin(query, "a (b c)", store=store).run_epoch({})
    assert InlineJoin(query, store=store).manifest.plan == "a (b c)"
    other = small_query(["a.k = b.k", "b.j = c.j"], "abc")
    with pytest.raises(CheckpointError, match="must go on with what its checkpoint was made with: on was"):
        InlineJoin(other, store=store)
    with pytest.raises(CheckpointError, match=r"options.groups was 8; got 9"):
        InlineJoin(query, store=store, settings=Settings(2, 9))


def test_a_plan_of_other_streams_is_refused():
    with pytest.raises(PlanError, match="c is not a stream"):
        InlineJoin(QUERY, "(a b) c")


def test_two_runners_on_one_store_cannot_both_commit():
    store = MemoryStore()
    one, two = InlineJoin(QUERY, store=store), InlineJoin(QUERY, store=store)
    two.run_epoch({})
    with pytest.raises(FencedError, match="must hold the newest lease"):
        one.run_epoch({})


def test_times_at_both_ends_of_the_calendar_are_far_apart():
    for late, early in ((2**63 - 1, -(2**63) + 8), (2**62, -(2**62))):
        join = InlineJoin(QUERY, settings=Settings(2, 8, max_event_time_ahead=None))
        got = join.run_epoch({"a": rows((late, 1, 0, "x")), "b": rows((early, 1, 0, "y"))})
        assert (got.num_rows, join.report.counts["a"].accepted) == (0, 1)
