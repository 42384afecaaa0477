"""What a shell knows of an epoch's sources: how far behind they are, and whether that gets more."""

from datetime import UTC, datetime, timedelta

import pytest

from midstream.protocol.trigger_facts import (
    TREND_EPOCHS,
    Backlog,
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
        unread_files=unread_files,
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


def test_rates_divide_by_at_least_a_millisecond_and_the_first_trigger_has_none_before():
    first = TriggerFacts(started=NOW)
    assert first.seconds_since_previous is None
    assert first.seconds_until(NOW) == first.seconds_until(NOW - timedelta(seconds=1)) == 0.001
    second = TriggerFacts(started=NOW, previous=NOW - timedelta(seconds=5))
    assert (second.seconds_since_previous, second.seconds_until(NOW + timedelta(seconds=2))) == (5.0, 2.0)
