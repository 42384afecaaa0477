"""Partitions keep their records, in their order, and prefer the places that they are given."""

import pytest

from midstream.errors import InternalError
from midstream.spark.preferred_locations import with_preferred_locations
from midstream.spark.shuffle import shuffle
from midstream.spark.worker_python import use_this_python

pytestmark = pytest.mark.spark

PLACES = [["one"], ["executor_two_7"], [], ["three", "four"]]


@pytest.fixture(scope="module")
def context(spark):
    use_this_python(spark)
    return spark.sparkContext


def preferred(rdd):
    """What Spark's scheduler goes by."""
    locations = rdd.context._jsc.sc().getPreferredLocs
    found = [locations(rdd._jrdd.rdd(), number) for number in range(rdd.getNumPartitions())]
    return [[found.apply(number).toString() for number in range(found.size())] for found in found]


def test_values_of_the_driver_have_the_places_that_they_are_given(context):
    rdd = context.parallelize(range(10), 4)
    placed = with_preferred_locations(rdd, PLACES)
    assert placed.glom().collect() == rdd.glom().collect()
    assert preferred(placed) == PLACES


def test_what_tasks_have_computed_has_its_places_and_so_has_what_is_computed_from_it(context):
    rdd = context.parallelize(range(10), 4).map(str)
    placed = with_preferred_locations(rdd, PLACES).map(lambda text: text * 2)
    assert placed.glom().collect() == rdd.map(lambda text: text * 2).glom().collect()
    assert preferred(placed) == PLACES


def test_a_shuffle_moves_its_stage_and_not_the_one_before(context):
    def messages():
        return context.parallelize(range(40), 4).map(lambda number: (number % 4, b"%d" % number))

    before = with_preferred_locations(messages(), PLACES[::-1])
    placed = with_preferred_locations(shuffle([before], 4), PLACES)
    assert placed.mapPartitions(lambda records: [sorted(records)]).collect() == (
        shuffle([messages()], 4).mapPartitions(lambda records: [sorted(records)]).collect()
    )
    found = preferred(placed)
    # Without a place, a task would rather be where most of the output is that it gets.
    assert found.pop(2) != []
    assert found == [place for place in PLACES if place]
    assert preferred(before) == PLACES[::-1]


def test_other_places_replace_those_given_before(context):
    placed = with_preferred_locations(
        with_preferred_locations(context.parallelize(range(10), 4), PLACES[::-1]), PLACES
    )
    assert preferred(placed)[:2] == PLACES[:2]
    assert placed.collect() == [*range(10)]


def test_a_union_has_the_places_of_its_parts(context):
    parts = [context.parallelize([number], 1) for number in range(2)]
    union = context.union(
        [with_preferred_locations(part, [[f"host{number}"]]) for number, part in enumerate(parts)]
    )
    assert preferred(union) == [["host0"], ["host1"]]
    assert union.collect() == [0, 1]


def test_every_partition_must_have_its_places(context):
    with pytest.raises(InternalError, match="every partition must have its places; got 3 of 4"):
        with_preferred_locations(context.parallelize(range(10), 4), PLACES[:3])
