"""A query whose plan is changed while it runs."""

from typing import NamedTuple

from midstream import Join
from midstream.migration.request import BackgroundChoice
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate
from tests.spark.driver_course import DriverCourse, Life
from tests.spark.feed import input_of_batches
from tests.spark.runner import check

SHAPE = Shape(rows=20, late=0.05, null_keys=0.05, null_times=0.02, duplicates=0.05, keys=12)
ONE_KEY = ("a.k = b.k", "b.k = c.k", "c.k = d.k")
SEVERAL_KEYS = ("a.k = b.k", "b.k2 = c.k2", "c.k = d.k")
LEFT_DEEP, RIGHT_DEEP, BUSHY, FLAT = "((a b) c) d", "a (b (c d))", "(a b) (c d)", "a b c d"
ASKED, BEGUN = 2, 3
"""The epoch in which another plan is requested, and the one that applies the request."""


def columns(df):
    """The frame as it is: tasks read its files themselves."""
    return df


def rows(df):
    """The frame with a computation, which Spark runs."""
    return df.where("true")


class Step(NamedTuple):
    """A change of the plan that follows others."""

    plan: str
    strategy: str
    background: BackgroundChoice = "auto"


class MigrationScenario:
    """Runs a query, and requests other plans while it runs."""

    def __init__(self, spark, feed, runner) -> None:
        self.spark = spark
        self.feed = feed
        self.runner = runner

    def join_of(self, predicates, source):
        """A function that makes the join, to be called once there is input."""
        return lambda: self.join(predicates, source)

    def join(self, predicates=ONE_KEY, source=columns):
        join = Join(self.spark)
        for name in "abcd":
            join = join.stream(name, source(self.feed.df(name)), time="t", lateness="5 seconds")
        return join.on(*predicates).within("9 seconds").select("a.id", "b.id", "c.id", "d.id", "b.k2")

    def add(self, count):
        given = len(self.feed.epochs)
        self.feed.add(*generate(dict.fromkeys("abcd", SHAPE), epochs=given + count, seed=21)[given:])

    def run(self, *migrations, join=None, epochs=7, look=None, **options):
        """Add epochs and run all; ``look`` is called with the query at every crash point."""
        self.add(epochs)
        made = (join or self.join)()
        partitions = {} if made.query().topology else {"partitions": 2}
        course = DriverCourse(Life(changes=migrations), look=look)
        query = course.run(lambda: self.runner.start(made, **partitions, **options))
        assert course.changes == []
        return query

    def run_through(self, *steps, join, epochs, **options):
        """Add epochs and run all; each step is requested one epoch after the one before has ended.

        Returns the query, and the epochs in which the steps were requested.
        """
        asked: list[int] = []

        def look(query, point):
            manifest = query._handler.manifest
            is_done = manifest.migrations == len(asked) and manifest.migration is None
            if point == "before the step" and is_done and manifest.epoch >= 0 and len(asked) < len(steps):
                step = steps[len(asked)]
                asked.append(manifest.epoch + 1)
                query.migrate(step.plan, step.strategy, background=step.background)

        query = self.run(join=join, epochs=epochs, look=look, **options)
        assert len(asked) == len(steps), f"only {len(asked)} of the steps were come to"
        return query, asked

    def check(self, join=None):
        epochs = input_of_batches(self.feed, self.runner.checkpoint)
        assert _count(epochs) == _count(self.feed.epochs)
        want = check((join or self.join()).query(), epochs, self.runner.results())
        assert want.num_rows > 50
        assert fsck(LocalStore(str(self.runner.checkpoint))).problems == ()


def _count(epochs):
    return sum(table.num_rows for epoch in epochs for table in epoch.values())


def events_of(query):
    """The events of all epochs of the query."""
    return [event for progress in query.recentProgress for event in progress["events"]]
