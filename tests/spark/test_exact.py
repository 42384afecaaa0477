"""Joins of every shape on real Spark give what a batch join of the accepted rows gives."""

import pytest

from midstream import Join
from midstream.testing import Shape, generate
from tests.spark.runner import check, join_streams

pytestmark = pytest.mark.spark

NASTY = Shape(rows=40, late=0.05, null_keys=0.05, null_times=0.02, duplicates=0.05, hot=0.2, keys=12)

GRAPHS = {
    "chain over one key": (["a.k = b.k", "b.k = c.k", "c.k = d.k"], None),
    "clique, bushy": (["a.k = b.k", "a.k = c.k", "a.k = d.k", "b.k = d.k"], "(a b) (c d)"),
    "star over two keys": (["a.k = b.k", "a.k2 = c.k2", "a.k = d.k"], None),
    "chain over three keys": (["a.k = b.k", "b.k2 = c.k2", "c.v = d.v"], None),
    "right-deep over two keys": (["a.k = b.k", "b.k2 = c.k2", "c.k2 = d.k2"], "a (b (c d))"),
    "one node": (["a.k = b.k", "b.k = c.k", "c.k = d.k"], "a b c d"),
    "one node without a common key": (["a.k = b.k", "b.k2 = c.k2", "c.k = d.k"], "a b c d"),
    "cycle": (["a.k = b.k", "b.k2 = c.k2", "c.k = d.k", "d.k2 = a.k2"], "(a b) (c d)"),
    "several columns and residuals": (
        ["a.k = b.k AND a.k2 = b.k2", "b.k = c.k", "c.k = d.k", "a.v < d.v", "abs(a.v - b.v) < c.v"],
        None,
    ),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_join_graph_is_exact(spark, feed, runner, graph):
    predicates, plan = GRAPHS[graph]
    feed.add(*generate(dict.fromkeys("abcd", NASTY), epochs=4, seed=len(graph)))
    frames = {name: feed.df(name) for name in "abcd"}
    join = join_streams(spark, frames, lateness="5 seconds")
    join = join.on(*predicates).within("12 seconds").select("a.id", "b.id", "c.id", "d.id", "c.k2", "d.v")
    query = runner.run(join, **({"plan": plan} if plan else {}))
    want = check(join.query(), feed.epochs, runner.results())
    assert want.num_rows > 0
    assert sum(p["numOutputRows"] for p in query.recentProgress) == want.num_rows
    assert len(query.recentProgress) == 4


def test_windows_per_pair_close_by_shortest_path(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("abc", Shape(rows=60, keys=6)), epochs=5, seed=5))
    frames = {name: feed.df(name) for name in "abc"}
    join = join_streams(spark, frames, lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k = c.k").within("8 seconds", "a", "b").within("3 seconds", "b", "c")
    runner.run(join)
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0
    assert join.query().windows.width("a", "c") == 11_000_000


def test_without_a_window_everything_meets(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=30)), epochs=4, seed=6))
    join = Join(spark).stream("a", feed.df("a"), time="t").stream("b", feed.df("b"), time="t").on("a.k = b.k")
    query = runner.run(join)
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0
    assert query.lastProgress["state"]["{a}"]["rows"] == sum(
        p["sources"]["a"]["rows"] - p["sources"]["a"]["late"] for p in query.recentProgress
    )


def test_a_cross_join_must_be_asked_for_and_then_works(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=15)), epochs=3, seed=7))
    join = Join(spark).stream("a", feed.df("a"), time="t").stream("b", feed.df("b"), time="t")
    join = join.on("a.v < b.v").within("10 seconds").cross()
    runner.run(join)
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0


def test_a_stream_joins_itself_under_two_names(spark, feed, runner):
    feed.add(*generate({"a": Shape(rows=30)}, epochs=3, seed=8))
    frame = feed.df("a")
    join = Join(spark).stream("x", frame, time="t", lateness="5 seconds")
    join = join.stream("y", frame, time="t", lateness="5 seconds").on("x.k = y.k", "x.id < y.id")
    join = join.within("10 seconds")
    runner.run(join)
    epochs = [{"x": epoch["a"], "y": epoch["a"]} for epoch in feed.epochs]
    assert check(join.query(), epochs, runner.results()).num_rows > 0


def test_an_epoch_in_which_a_stream_is_silent(spark, feed, runner):
    shapes = {"a": Shape(rows=30), "b": Shape(rows=30, silent=frozenset({1, 2})), "c": Shape(rows=30)}
    feed.add(*generate(shapes, epochs=5, seed=9))
    frames = {name: feed.df(name) for name in "abc"}
    join = join_streams(spark, frames, lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k = c.k").within("15 seconds")
    runner.run(join)
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0
