"""The hand-over time, from what is stored and what arrives."""

import pytest
from msgspec.structs import replace

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.replace.handover_time import handover_time, is_done, last_window_end, longest_window
from midstream.state.manifest import Manifest, StreamProgress
from midstream.state.window_change import WindowChange
from tests.helpers import small_query

OLD = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=10)
WIDER = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=30)
WINDOW = OLD.windows.width("a", "b") or 0


def manifest(**streams: tuple[int | None, int | None]) -> Manifest:
    """A manifest whose streams have these latest times and watermarks."""
    join = InlineJoin(OLD, settings=Settings(1, 1))
    join.run_epoch({})
    progress = {n: StreamProgress(latest=latest, watermark=mark) for n, (latest, mark) in streams.items()}
    return replace(join.manifest, streams=progress)


def test_without_rows_all_results_are_those_of_the_new_definition():
    empty = manifest(a=(None, None), b=(None, None), c=(None, None))
    assert handover_time(OLD, empty, WIDER, "abc") is None
    assert handover_time(OLD, empty, WIDER, "") is None
    assert is_done(OLD, empty, None)


def test_with_the_same_windows_it_is_the_latest_time_unless_rows_are_not_replayed():
    now = manifest(a=(1000, 990), b=(1007, 997), c=(900, 890))
    assert handover_time(OLD, now, OLD, "abc") == 1007
    assert handover_time(OLD, now, OLD, "") == 1007 + WINDOW
    assert handover_time(OLD, now, OLD, "ab") == 1007
    assert handover_time(OLD, now, OLD, "bc") == 1000 + WINDOW


def test_with_wider_windows_it_waits_for_rows_that_had_not_expired():
    mark = 10 * WINDOW
    now = manifest(a=(mark, mark), b=(mark, mark), c=(mark, mark))
    assert longest_window(WIDER, "a") == 3 * WINDOW
    assert handover_time(OLD, now, WIDER, "abc") == mark - WINDOW - 1 + 3 * WINDOW
    # A stream that has had no rows yet keeps all of the others.
    silent = manifest(a=(mark, mark), b=(mark, mark), c=(None, None))
    assert handover_time(OLD, silent, WIDER, "abc") == mark


def test_what_had_expired_when_windows_changed_is_not_counted_on():
    mark = 10 * WINDOW
    now = manifest(a=(mark, mark), b=(mark, mark), c=(mark, mark))
    narrow = tuple((a, b, 0) for a, b, _ in OLD.windows.widths)
    change = WindowChange(
        epoch=0, within=narrow, watermarks=dict.fromkeys("abc", mark - 1), latest=dict.fromkeys("abc", mark)
    )
    now = replace(now, window_changes=(change,))
    assert handover_time(OLD, now, OLD, "abc") == mark - 2 + WINDOW


@pytest.mark.parametrize(
    ("marks", "done"), [((1000, 1001), False), ((1001, 1001), True), ((None, 1001), False)]
)
def test_the_old_box_is_done_when_no_result_up_to_the_hand_over_time_can_come(marks, done):
    now = manifest(a=(2000, marks[0]), b=(2000, marks[1]), c=(2000, 5000))
    assert is_done(OLD, now, 1000) == done
    assert last_window_end(OLD, 1000) == 1001
