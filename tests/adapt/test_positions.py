"""Positions: they follow the streams, not single epochs that are out of time."""

from __future__ import annotations

from midstream.adapt.positions import Position, advance_position, median_position
from midstream.engine.event_times import TimeRange

WINDOW = 20.0


def positions(*epochs: tuple[int, int] | None) -> list[int | None]:
    """The position after each epoch, given the ranges of their rows."""
    position, times = Position(), []
    for epoch in epochs:
        position = advance_position(position, None if epoch is None else TimeRange(*epoch), WINDOW)
        times.append(position.time)
    return times


def test_a_position_is_the_end_of_the_newest_epoch_so_far():
    assert positions(None, (0, 5), (2, 9), (1, 8), None, (9, 12)) == [None, 5, 9, 9, 9, 12]


def test_epochs_may_be_much_longer_than_the_window():
    assert positions((0, 100), (100, 200), (200, 290)) == [100, 200, 290]


def test_one_epoch_far_ahead_is_not_believed():
    assert positions((0, 5), (600, 600), (6, 8), (9, 10)) == [5, 5, 8, 10]


def test_a_pause_is_believed_with_the_second_epoch_after_it():
    assert positions((0, 5), (600, 605), (605, 610), (610, 615)) == [5, 5, 605, 615]


def test_a_position_that_was_wrong_is_corrected():
    assert positions((0, 5), (600, 600), (601, 601), (8, 10), (10, 12), (12, 14)) == [5, 5, 600, 600, 12, 14]


def test_a_silent_stream_holds_up_no_other():
    assert median_position([None, 5, 90]) == 90
    assert median_position([4, 5, 90]) == 5
    assert median_position([None, None]) is None
