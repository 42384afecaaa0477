"""Generated streams depend on their seed, and are what they were asked to be."""

from midstream.testing import Shape, generate, stream


def test_generated_streams_depend_on_the_seed_only_and_do_what_they_are_told():
    shape = Shape(
        rows=400, hot=0.5, late=0.1, null_keys=0.1, null_times=0.1, duplicates=0.1, silent=frozenset({1})
    )
    shapes = {"a": shape, "b": Shape()}
    one, two, other = (generate(shapes, 3, seed) for seed in (1, 1, 2))
    assert one == two != other
    first, silent = one[0]["a"], one[1]["a"]
    assert first.schema == stream("a", shape).schema
    assert silent.num_rows == 0
    assert 0 < first.column("t").null_count < 100
    assert 0 < first.column("k").null_count < 100
    assert first.column("k").to_pylist().count(0) > 150
    assert len(set(first.column("id").to_pylist())) < 400
