"""What would change and what it would take, and both definitions while one replaces the other."""

import re
from dataclasses import replace

import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.inline import InlineJoin
from midstream.migration.paper_models import BlackBoxModel
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.replace.prediction import describe_strategy_prediction, show_seconds
from midstream.testing import Shape, generate, stream
from midstream.testing.hypothesis_aggregates import with_aggregation
from midstream.testing.random_streams import SECOND
from midstream.values import Micros, show_time
from tests.sites.adaptive_case import sited_query

SHAPE = Shape(rows=20, late=0.0, keys=10)


def _query(names: str, window: int, *predicates: str, columns: tuple[str, ...] = ("a.id", "b.id")) -> Query:
    streams = [stream(name, SHAPE) for name in names]
    return build_query(
        streams, predicates, default_window=Micros(window * SECOND), select=columns, cross=True
    )


OLD = _query("abc", 20, "a.k = b.k", "b.k = c.k")
WIDER = _query("abc", 40, "a.k = b.k", "b.k = c.k")
EPOCHS = generate(dict.fromkeys("abcd", SHAPE), epochs=20, seed=1)


def _run(count: int) -> InlineJoin:
    join = InlineJoin(OLD, settings=Settings(2, 8))
    for epoch in EPOCHS[:count]:
        join.run_epoch({name: epoch[name] for name in "abc"})
    return join


def test_what_would_change_and_what_it_would_take():
    join = _run(6)
    before = join.manifest
    text = join.explain_replace(WIDER)
    assert "window between streams: 20 seconds -> 40 seconds" in text
    assert text.count("have what the new definition needs") == 3
    costs = [line for line in text.splitlines() if "units" in line]
    assert [line.split(":")[0].strip() for line in costs] == [
        "generalized_hybrid",
        "generalized_moving_state",
        "generalized_parallel_track",
    ]
    assert "units at once" in costs[1]
    assert join.explain_replace(OLD).startswith("What changes:\n  nothing")
    assert join.manifest == before
    assert not join.is_replacing


def test_what_cannot_be_is_said_by_strategy():
    join = _run(3)
    text = join.explain_replace(_query("abcd", 20, "a.k = b.k", "b.k = c.k", "c.v = d.v"))
    assert "d: a new stream, whose rows are joined from now on" in text
    assert "c: lack c.v" in text
    assert (
        "generalized_hybrid, generalized_moving_state: refused: a strategy with stored rows must find" in text
    )
    assert "generalized_parallel_track: results after" in text
    fewer = join.explain_replace(_query("abc", 20, "a.k = b.k", "b.k = c.k", columns=("a.id",)))
    assert fewer.count("results of another schema must have a place of their own") == 1


def test_both_definitions_are_explained_while_one_replaces_the_other():
    join = _run(6)
    assert join.explain().startswith("Plan:")
    join.replace(WIDER, "a (b c)", "generalized_hybrid")
    join.run_epoch({name: EPOCHS[6][name] for name in "abc"}, background_epochs=1)
    texts = []
    for number in range(7, 20):
        if join.manifest.replacement is None:
            break
        texts.append(join.explain())
        join.run_epoch({name: EPOCHS[number][name] for name in "abc"}, background_epochs=1)
    assert texts[0].startswith("Replacement 1 of the definition, by generalized_hybrid, since epoch 6\n")
    assert "% of the stored rows: those that came before epoch" in texts[0]
    assert "are the old definition's, later ones the new one's; " in texts[-1]
    old, new = texts[-1].partition("== Old definition ==")[2].split("== New definition ==")
    assert "Plan: (a b) c" in old
    assert "Plan: a (b c)" in new
    assert join.manifest.replacement is None


def test_windows_are_explained_by_their_beginning_until_the_last_is_out():
    def counted(length: int) -> Query:
        return with_aggregation(
            OLD, read_aggregation(["a.k AS k", window(f"{length} seconds")], ["count(*) AS n"], OLD.streams)
        )

    join = InlineJoin(counted(40), settings=Settings(2, 8))
    texts: list[str] = []
    for number, epoch in enumerate(EPOCHS):
        if number == 6:
            join.replace(counted(5), None, "generalized_moving_state")
        join.run_epoch({name: epoch[name] for name in "abc"})
        replacement = join.manifest.replacement
        if replacement is not None:
            texts.append(join.explain().splitlines()[1])
            begin = f"Windows that begin by {show_time(replacement.until)} are the old definition's"
            assert texts[-1].startswith(f"{begin}, all that is later is the new one's; ")
    ends = [text.partition("; ")[2] for text in texts]
    assert ends[0].startswith("both go on for ")
    last = "the old one gives its last windows with the next epoch, and ends with the one after it."
    assert ends[-2:] == [last, "the old one ends with the next epoch."]


def test_what_would_be_refused_whatever_the_strategy_is_said_once():
    join = _run(2)
    sited = sited_query()
    for running, new in ((join, sited), (InlineJoin(sited), replace(sited, topology=None))):
        text = running.explain_replace(new)
        assert text.count("It would be refused: a definition that is replaced must have no streams that") == 1
        assert "Stored rows" not in text
    assert join.explain_replace(WIDER, "a b").endswith("Hint: the streams are a, b, c")


def test_durations_are_predicted():
    join = _run(6)
    hybrid, moving, track = (
        line for line in join.explain_replace(WIDER).splitlines() if line.startswith("  generalized_")
    )
    seconds = r"\d+(\.\d)? (ms|s|minutes)"
    until = r"results after 2024-01-01T00:01:\d\d\.\d+Z"
    assert re.fullmatch(
        rf"  generalized_hybrid: {until} at the earliest, once it has caught up, are the new definition's; "
        rf"both go on for {seconds} of event time; about [\d,]+ units in the time that batches leave, at "
        rf"least {seconds}",
        hybrid,
    )
    assert re.fullmatch(
        rf"  generalized_moving_state: {until} are the new definition's; both go on for {seconds} of event "
        rf"time; about [\d,]+ units at once, and results are late for {seconds}",
        moving,
    )
    assert re.fullmatch(
        rf"  generalized_parallel_track: {until} are the new definition's; both go on for {seconds} of event "
        r"time; about [\d,]+ units for both definitions meanwhile",
        track,
    )
    # A row was 5 seconds late at most, and the new window is 40 seconds.
    assert "both go on for 48 s of event time" in track
    assert "not known yet" in _run(0).explain_replace(WIDER)
    added = join.explain_replace(_query("abcd", 20, "a.k = b.k", "b.k = c.k", "c.k = d.k"))
    assert added.count("what it costs is not known, as nothing is known of stream d") == 3


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1 ms"),
        (0.0204, "20 ms"),
        (1.25, "1.2 s"),
        (75, "75 s"),
        (150, "2 minutes"),
        (7199, "120 minutes"),
        (86_400, "24 hours"),
        (1_000_000, "12 days"),
    ],
)
def test_durations_are_shown_as_people_say_them(seconds, shown):
    assert show_seconds(seconds) == shown


def test_a_strategy_that_never_catches_up_is_told():
    busy = BlackBoxModel(tau=10.0, tau_before=10.0, n=3, w=20.0, t_old=0.02, t_new=0.04, t_new_before=0.04)
    hybrid, moving, track = (
        describe_strategy_prediction(f"generalized_{name}", busy, 20.0, 1e-6)
        for name in ("hybrid", "moving_state", "parallel_track")
    )
    assert hybrid == "it does not catch up: batches leave no time"
    assert moving == (
        "about 24,000,000 units at once, and results are late by 24 s, and the query never catches up"
    )
    assert track == "about 36,000,000 units for both definitions meanwhile"


def test_a_replacement_that_waits_is_explained():
    join = _run(6)
    join.replace(WIDER)
    assert join.explain().startswith(
        "A replacement waits: of the definition, by generalized_hybrid.\n"
        "It begins with the next epoch, unless another change of plan that was asked for comes first.\n"
        "  window between streams: 20 seconds -> 40 seconds\n"
        "\n"
        "Plan: (a b) c\n"
    )
    join = _run(6)
    join.migrate("a (b c)", "parallel_track")
    join.run_epoch({name: EPOCHS[6][name] for name in "abc"})
    join.migrate("a b c", "generalized_parallel_track")
    assert join.explain().startswith(
        "A replacement waits: of the plan, by generalized_parallel_track.\n"
        "It begins once the migration has ended.\n"
        "  plan: a (b c) -> a b c\n"
        "\n"
        "Migration 1,"
    )


def test_a_replacement_of_the_plan_is_called_so():
    join = _run(6)
    join.migrate("a (b c)", "generalized_parallel_track")
    join.run_epoch({name: EPOCHS[6][name] for name in "abc"})
    text = join.explain()
    assert text.startswith(
        "Replacement 1 of the plan, by generalized_parallel_track, since epoch 6\nResults until"
    )
    assert "are the old plan's, later ones the new one's; both go on for" in text
    assert text.count("== Old plan ==") == text.count("== New plan ==") == 1
    assert join.manifest.replacement is not None
    progress, until = join.recentProgress[-1], show_time(join.manifest.replacement.until)
    assert [event["message"] for event in progress["events"]] == [
        "replacement 1 of the plan started, by generalized_parallel_track",
        f"replacement 1: results after {until} are those of the new plan",
    ]
    assert progress["replacement"] == {
        "id": 1,
        "replaces": "plan",
        "strategy": "generalized_parallel_track",
        "startEpoch": 6,
        "phase": "both plans",
        "caughtUp": 1.0,
        "until": progress["events"][1]["until"],
    }


def test_progress_says_how_far_the_new_definition_has_caught_up():
    join = _run(6)
    join.replace(WIDER)
    shares, replayed = [], []
    for number in range(6, 20):
        join.run_epoch({name: EPOCHS[number][name] for name in "abc"}, background_epochs=1)
        progress = join.recentProgress[-1]["replacement"]
        if progress is None or progress["phase"] != "catching up":
            break
        assert join.manifest.replacement is not None
        shares.append(progress["caughtUp"])
        replayed.append(join.manifest.replacement.replayed_before)
        assert f"The new definition has {100 * shares[-1]:.0f} % of the stored rows" in join.explain()
    assert len(shares) >= 2
    assert shares == sorted(shares)
    # As many rows came with each epoch, and none has expired that was stored when it began.
    assert shares[0] == pytest.approx(replayed[0] / 7, abs=0.1)
    assert 0 < shares[0] < shares[-1] < 1
    assert progress["caughtUp"] == 1.0
