"""What would change and what it would take, and both definitions while one replaces the other."""

from midstream.inline import InlineJoin
from midstream.protocol.progress import state_sizes
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.replace.explain import explain_running
from midstream.testing import Shape, generate, stream
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

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
    assert "windows: a, b 20 seconds, a, c 20 seconds, b, c 20 seconds -> a, b 40 seconds" in text
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
    assert "generalized_hybrid: refused: generalized_hybrid must find the columns" in text
    assert "generalized_parallel_track: results after" in text
    fewer = join.explain_replace(_query("abc", 20, "a.k = b.k", "b.k = c.k", columns=("a.id",)))
    assert fewer.count("refused: results of another schema must have a place of their own") == 3


def test_both_definitions_are_explained_while_one_replaces_the_other():
    join = _run(6)
    assert explain_running(join.coordinator, join.manifest, {}, {}).startswith("Plan:")
    join.replace(WIDER, "a (b c)", "generalized_hybrid")
    join.run_epoch({name: EPOCHS[6][name] for name in "abc"}, background_epochs=1)
    texts = []
    for number in range(7, 20):
        replacement = join.manifest.replacement
        if replacement is None:
            break
        sizes = [state_sizes(manifest) for manifest in (join.manifest, replacement.successor)]
        texts.append(explain_running(join.coordinator, join.manifest, sizes[0], sizes[1]))
        join.run_epoch({name: EPOCHS[number][name] for name in "abc"}, background_epochs=1)
    assert "Replacement 1, by generalized_hybrid, since epoch 6" in texts[0]
    assert "The new definition has the stored rows of epochs before" in texts[0]
    assert "are the old definition's, later ones the new one's." in texts[-1]
    old, new = texts[-1].partition("== Old definition ==")[2].split("== New definition ==")
    assert "Plan: (a b) c" in old
    assert "Plan: a (b c)" in new
    assert join.manifest.replacement is None
