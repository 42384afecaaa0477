"""What ``explain("adaptive")`` prints before much is known: no absurd figures, and what is guessed."""

import re

from midstream.adapt.explain import explain_adaptive
from midstream.inline import InlineJoin
from midstream.query.query import Query
from midstream.values import MICROS_PER_SECOND
from tests.helpers import rows, small_query

HOUR = 3600 * MICROS_PER_SECOND
CONDITIONS = ["a.v < b.v", "a.v <> 'x' OR b.v <> 'x'"]
QUERY = small_query(["a.k = b.k"], lateness=HOUR // 2, default_window=2 * HOUR)


def explained(*epochs: dict[str, list[tuple[float, int]]], query: Query = QUERY) -> str:
    """The text after epochs of rows: seconds and keys by stream."""
    join = InlineJoin(query)
    for epoch in epochs:
        join.run_epoch({n: rows(*((int(s * 1e6), k) for s, k in lines)) for n, lines in epoch.items()})
    context = join.coordinator.decision_context(join.manifest)
    return explain_adaptive(context, join.manifest.adaptation, adapts=True)


def rate_of_pairs(text: str) -> float:
    (rate,) = re.findall(r"a and b: (.*) rows/s", text)
    return float(rate.replace(",", ""))


def test_a_join_never_has_more_rows_than_its_streams_allow():
    first = {"a": [(0.0, 1), (3600.0, 2)], "b": [(1800.0, 1), (1800.0, 2), (1800.0, 3)]}
    text = explained(first, {"a": [(2400.0, 3)], "b": [(1800.0, 9)]})
    assert "Little is known yet: 600 s of event time have passed, and the window is 7,200 s." in text
    # One row of each stream in ten minutes, and a window of two hours to either side.
    assert 0 < rate_of_pairs(text) <= 1 / 600 * 1 / 600 * 14400


def test_estimates_do_not_explode_where_event_time_hardly_advances():
    first = {"a": [(1800.0, 1)], "b": [(1800.0, 2)]}
    text = explained(first, {"a": [(1800.002, 3)], "b": [(1800.001, 9)]})
    assert "Little is known yet" in text
    assert rate_of_pairs(text) < 100_000


def test_estimates_say_how_many_conditions_they_guess():
    epochs = [{"a": [(1800.0 + i, 1)], "b": [(1800.0 + i, 1)]} for i in range(2)]
    assert "guessed" not in explained(*epochs)
    for count, guess in (
        (1, "; what a condition leaves is guessed"),
        (2, "; what 2 conditions leave is guessed"),
    ):
        query = small_query(["a.k = b.k", *CONDITIONS[:count]], default_window=2 * HOUR)
        assert guess in explained(*epochs, query=query)
