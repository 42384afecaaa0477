"""What a shell knows of an epoch's sources: how far behind they are, and whether that gets more."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from midstream.protocol.trigger_facts import (
    TREND_EPOCHS,
    Backlog,
    FileCount,
    SourceOffsets,
    TriggerFacts,
    backlog_of,
    trend_of,
)

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def source(end: str | None, latest: str | None, unread_files: int | None = None) -> SourceOffsets:
    return SourceOffsets(
        description="a source",
        start_offset=None,
        end_offset=end,
        latest_offset=latest,
        files=None if unread_files is None else FileCount(unread_files),
    )


@pytest.mark.parametrize(
    ("end", "latest", "behind"),
    [
        ('{"t":{"0":30,"1":5}}', '{"t":{"0":70,"1":5}}', 40),
        ('{"t":{"0":30,"1":5}}', '{"t":{"0":70,"1":9}}', 44),
        ("12", "20", 8),
        ("20", "20", 0),
        ('{"t":{"0":30}}', '{"t":{"0":20}}', 0),  # a topic that was made anew
        ('{"t":{"0":30}}', '{"t":{"0":31,"1":500}}', 1),  # where a new partition begins is not known
        ('{"t":{"0":30}}', None, None),
        (None, "20", None),
        ('"shard-17"', '"shard-18"', None),
        ("not JSON", "not JSON", None),
        ('{"done":false}', '{"done":true}', None),
    ],
)
def test_a_source_is_behind_by_the_sum_of_what_its_offsets_differ_in(end, latest, behind):
    expected = None if behind is None else Backlog(behind, "offsets")
    assert source(end, latest).backlog() == expected


def test_a_source_of_files_is_behind_by_the_files_that_it_has_not_read():
    assert source('{"logOffset":3}', None, unread_files=7).backlog() == Backlog(7, "files")


def test_offsets_have_sparks_names_and_stay_text_if_they_are_no_json():
    form = source('{"t":{"0":30}}', "half { JSON").to_dict()
    assert form == {
        "description": "a source",
        "startOffset": None,
        "endOffset": {"t": {"0": 30}},
        "latestOffset": "half { JSON",
        "metrics": {},
    }


def test_the_backlog_of_a_stream_is_that_of_all_its_sources():
    assert backlog_of([source("1", "5"), source("2", "9")], []) == Backlog(11, "offsets")
    assert backlog_of([], []) is None
    assert backlog_of([source("1", "5"), source("1", None)], []) is None, "one does not say"
    assert backlog_of([source("1", "5"), source(None, None, 3)], []) is None, "units do not add up"


@pytest.mark.parametrize(
    ("counts", "trend"),
    [
        ([], None),
        (list(range(TREND_EPOCHS - 1)), None),
        ([0] * TREND_EPOCHS, "steady"),
        ([100, 109] * (TREND_EPOCHS // 2), "steady"),
        ([100 + 10 * i for i in range(TREND_EPOCHS)], "growing"),
        ([200 - 10 * i for i in range(TREND_EPOCHS)], "shrinking"),
        ([0] * (TREND_EPOCHS - 1) + [5], "growing"),
        ([0] * (TREND_EPOCHS - 1) + [4], "steady"),
        ([0] * (TREND_EPOCHS - 2) + [5, 0], "shrinking"),
        ([0, 1, 0, 0, 1, 1, 0, 1], "steady"),
        ([10] * (TREND_EPOCHS // 2) + [0] * (TREND_EPOCHS // 2), "shrinking"),
    ],
)
def test_a_trend_compares_the_newer_half_with_the_older(counts, trend):
    assert trend_of(counts) == trend


def test_the_trend_is_that_of_the_last_epochs_in_the_same_unit():
    offsets = [Backlog(10 * i, "offsets") for i in range(20)]
    assert backlog_of([source("0", "200")], offsets) == Backlog(200, "offsets", "growing")
    grown_long_ago = [*offsets, *[Backlog(200, "offsets")] * (TREND_EPOCHS - 1)]
    assert backlog_of([source("0", "200")], grown_long_ago) == Backlog(200, "offsets", "steady")
    mixed = [None, *[Backlog(i, "files") for i in range(20)]]
    assert backlog_of([source("0", "200")], mixed) == Backlog(200, "offsets", None)


def lag(arriving: Sequence[int], limit: int) -> list[tuple[int, Backlog | None]]:
    """Of each epoch, how many files there are truly, and what is told of them.

    The source is one of Spark's: it looks for files only once it has read those that it had found.
    """
    waiting = found = 0
    count: FileCount | None = None
    told: list[Backlog | None] = []
    truly = []
    for files in arriving:
        waiting += files
        if not found:
            found, waiting = waiting, 0
        found -= min(limit, found)
        count = FileCount.of(found, count)
        told.append(backlog_of([replace(source("1", None), files=count)], told))
        truly.append(found + waiting)
    return list(zip(truly, told, strict=True))


def test_reading_what_was_found_long_ago_is_no_shrinking():
    """Five files come with each epoch, which reads two: it never catches up."""
    epochs = lag([0] * TREND_EPOCHS + [20] + [5] * 200, limit=2)
    assert epochs[-1][0] > 600
    trends = {told.trend for _, told in epochs[TREND_EPOCHS + 1 :] if told is not None}
    assert trends == {"growing"}


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_what_came_while_a_backlog_was_read_shows_that_it_shrinks(limit):
    epochs = lag([0] * TREND_EPOCHS + [200] + [0, 0, 0, 1] * 150, limit)
    trends = [None if told is None else told.trend for _, told in epochs]
    begun, shrinks = trends.index("growing"), trends.index("shrinking")
    assert begun == TREND_EPOCHS
    assert set(trends[begun:shrinks]) == {"growing"}
    assert shrinks == begun + math.ceil(200 / limit), "when all of the 200 are read"
    assert "growing" not in trends[shrinks:]


def test_of_what_was_there_at_the_start_no_trend_is_known():
    epochs = lag([50] + [3] * 200, limit=2)
    trends = [None if told is None else told.trend for _, told in epochs]
    looked_again = next(i for i, trend in enumerate(trends) if trend)
    assert looked_again == 25, "in the first 25 epochs, two of the first 50 files are read in each"
    assert set(trends[looked_again:]) == {"growing"}


def test_rates_divide_by_at_least_a_millisecond_and_the_first_trigger_has_none_before():
    first = TriggerFacts(started=NOW)
    assert first.seconds_since_previous is None
    assert first.seconds_until(NOW) == first.seconds_until(NOW - timedelta(seconds=1)) == 0.001
    second = TriggerFacts(started=NOW, previous=NOW - timedelta(seconds=5))
    assert (second.seconds_since_previous, second.seconds_until(NOW + timedelta(seconds=2))) == (5.0, 2.0)
