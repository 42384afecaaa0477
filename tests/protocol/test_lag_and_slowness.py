"""A stream that lags behind its source, and epochs that take longer than their interval."""

from dataclasses import replace

from midstream.protocol.health import SLOW_EPOCHS, Health, HealthFacts, HealthLimits
from midstream.protocol.trigger_facts import TREND_EPOCHS, Backlog, trend_of
from tests.protocol.watched import BASE, NOW, statuses, with_backlog


def slow(*durations: float, interval_ms: float | None = 1000) -> HealthFacts:
    (progress,) = BASE.recent
    recent = [replace(progress, duration_ms={"trigger": duration}) for duration in durations]
    return replace(BASE, recent=recent, limits=HealthLimits(interval_ms=interval_ms))


def test_a_stream_lags_from_when_its_backlog_grows_until_it_shrinks_or_is_gone():
    began, over = [("stream-lagging", "b", "began")], [("stream-lagging", "b", "over")]
    growing, steady, shrinking = (with_backlog(9, t) for t in ("growing", "steady", "shrinking"))
    assert statuses(steady, growing, steady, growing, shrinking) == [[], began, [], [], over]
    assert statuses(growing, with_backlog(0, "growing")) == [began, over]
    assert statuses(growing, with_backlog(None, None)) == [began, over]
    assert statuses(with_backlog(0, "growing")) == [[]]
    assert statuses(with_backlog(9, None), shrinking) == [[], []]
    (event,) = Health().after(growing, NOW)[1]
    assert event.message.startswith("stream b lags behind its source: 9 offsets not read yet, growing")


def test_a_backlog_that_comes_and_goes_is_one_problem():
    def lagging(*counts: int) -> list[tuple[int, str]]:
        (progress,) = BASE.recent
        epochs = []
        for number in range(len(counts)):
            window = counts[: number + 1][-TREND_EPOCHS:]
            backlog = Backlog(counts[number], "files", trend_of(window))
            epochs.append(
                replace(
                    progress, sources={n: replace(s, backlog=backlog) for n, s in progress.sources.items()}
                )
            )
        facts = [replace(BASE, recent=epochs[: number + 1]) for number in range(len(epochs))]
        found = statuses(*facts)
        return [(number, s) for number, events in enumerate(found) for kind, name, s in events if name == "b"]

    quiet = [0] * TREND_EPOCHS
    assert lagging(*quiet, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0) == []
    assert lagging(*quiet, 4, 9, 0, 12, 0, 0, 20, 30, 0, 40) == [(TREND_EPOCHS + 1, "began")]
    ended = lagging(*quiet, 4, 9, 12, 6, *[0] * 6)
    assert [status for _, status in ended] == ["began", "over"]


def test_epochs_are_slow_once_several_in_a_row_are_and_until_none_is():
    began, over = [("slow-epochs", "", "began")], [("slow-epochs", "", "over")]
    assert SLOW_EPOCHS == 3
    assert statuses(slow(1001, 1001)) == [[]]
    assert statuses(slow(1001, 1000, 1001)) == [[]]
    assert statuses(slow(9, 1001, 1001, 1001), slow(1001, 9, 9), slow(9, 9, 9)) == [began, [], over]
    for none in (None, 0.0):
        assert statuses(slow(1001, 1001, 1001, interval_ms=none)) == [[]], "nothing is due at any time"
