"""Partial slices of few groups are often equal, byte by byte: each of them counts."""

from __future__ import annotations

import random
from collections import Counter
from unittest import mock

import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing.hypothesis_aggregates import with_aggregation
from tests.helpers import rows, small_query

DAY = 86_400_000_000


class Counted:
    """How many results each group has in a day."""

    def __init__(self, partitions: int = 1) -> None:
        plain = small_query(["a.k = b.k"], default_window=10)
        aggregation = read_aggregation(["a.j AS j", window("1 day")], ["count(*) AS n"], plain.streams)
        query, self.store = with_aggregation(plain, aggregation), MemoryStore()
        self.join = InlineJoin(query, settings=Settings(partitions, 4), store=self.store)
        self.fed: Counter[int] = Counter()
        self.time = 0

    def feed(self, *groups: int) -> None:
        """An epoch with a result of each of these groups."""
        table = rows(*((self.time + i, self.time + i, group) for i, group in enumerate(groups)))
        assert not self.join.run_epoch({"a": table, "b": table}).num_rows
        self.time += len(groups)
        self.fed.update(groups)

    def check(self) -> None:
        """The counts of the day are those that were fed."""
        want, self.time = dict(self.fed), DAY + 1000
        assert not fsck(self.store).problems
        self.feed(-1)
        assert {row["j"]: row["n"] for row in self.join.run_epoch({}).to_pylist()} == want


def test_a_merged_slice_does_not_take_an_equal_one_of_other_epochs_with_it():
    counted = Counted()
    for n in (1, 1, 1, 1, 4, 1, 1, 1):
        counted.feed(*[0] * n)
    first, second = (s for s in counted.join.manifest.slices if s.owner.kind == "partial")
    assert (first.last_epoch, second.first_epoch) == (3, 4)
    counted.check()


@pytest.mark.parametrize("fan_in", [2, 4])
def test_the_counts_of_few_groups_in_many_epochs_are_right(fan_in):
    for seed in range(12):
        random_ = random.Random(seed)
        with mock.patch("midstream.state.compaction.FAN_IN", fan_in):
            counted = Counted(partitions=random_.randint(1, 3))
            for _ in range(40):
                if seed % 2 and random_.random() < 0.15:
                    counted.join.rescale(random_.randint(1, 4))
                groups = range(random_.choice([1, 1, 1, 1, 2]))
                counted.feed(*(group for group in groups for _ in range(random_.choice([1, 1, 2, 4, 8]))))
            counted.check()
