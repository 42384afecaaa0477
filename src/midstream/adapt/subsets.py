"""Sets of streams as the optimizer sees them: numbers, and what is known of each, looked up once."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.adapt.cost import HELD, INDEX_BYTES, INSERT
from midstream.adapt.estimate import Estimator

StreamSet = int
"""A set of streams: a bit for each, the first stream the lowest."""


class Subsets:
    """The sets of a query's streams."""

    def __init__(self, estimator: Estimator) -> None:
        query = estimator.query
        self.names = query.names
        self.whole: StreamSet = (1 << len(self.names)) - 1
        self.streams: list[StreamSet] = [1 << i for i in range(len(self.names))]
        self.keys = [sum(1 << self.names.index(name) for name in c.streams) for c in query.classes]
        """The streams of each key class."""
        self._estimator = estimator
        self._classes: dict[StreamSet, int] = {}
        self._rates: dict[StreamSet, float] = {}
        self._runs: dict[StreamSet, float] = {}
        self._kept: dict[StreamSet, float] = {}
        self._growth: dict[StreamSet, float] = {}

    def rate(self, members: StreamSet) -> float:
        """Rows of the join in a second."""
        if members not in self._rates:
            self._rates[members] = self._estimator.rate(self.named(members))
        return self._rates[members]

    def runs(self, members: StreamSet) -> float:
        """Slices of the set's state."""
        if members not in self._runs:
            self._runs[members] = self._estimator.runs(self.named(members))
        return self._runs[members]

    def kept(self, members: StreamSet) -> float:
        """What it costs to keep the joined rows of a set; those of a stream are kept in any case."""
        if members not in self._kept:
            names = self.named(members)
            size = INDEX_BYTES * (1 + 2 * len(names)) * self._estimator.held(names)
            cost = INSERT * self.rate(members) + HELD * size
            self._kept[members] = 0.0 if len(names) == 1 else cost
        return self._kept[members]

    def kept_stream(self, stream: StreamSet) -> float:
        """What it costs to keep the rows of a stream, with what they carry."""
        names = self.named(stream)
        size = INDEX_BYTES * 3 + self._estimator.row_bytes(names)
        return INSERT * self.rate(stream) + HELD * size * self._estimator.held(names)

    def payload(self, members: StreamSet) -> float:
        """Bytes that the joined rows of a set carry where they enter another stage."""
        names = self.named(members)
        return self._estimator.row_bytes(names) * self._estimator.held(names)

    def growth(self, members: StreamSet) -> float:
        """How many rows become of one that probes the set: of another stream with a key of it, on average."""
        if members not in self._growth:
            keys = self.classes(members)
            others = [s for s in self.streams if not s & members and self.classes(s) & keys]
            each = [self.rate(s | members) / max(self.rate(s), 1e-12) for s in others]
            self._growth[members] = sum(each) / max(len(each), 1)
        return self._growth[members]

    def classes(self, members: StreamSet) -> int:
        """The key classes that some of the streams have, a bit for each."""
        if members not in self._classes:
            bits = (1 << c for c, streams in enumerate(self.keys) if streams & members)
            self._classes[members] = sum(bits)
        return self._classes[members]

    def spanning(self, parts: tuple[StreamSet, ...]) -> int:
        """The key classes that all parts have, by which rows can be placed."""
        spanning = -1
        for part in parts:
            spanning &= self.classes(part)
        return spanning

    def is_connected(self, members: StreamSet) -> bool:
        """Whether keys lead from every stream to every other."""
        reached = members & -members
        while True:
            near = reached
            for streams in self.keys:
                if streams & reached:
                    near |= streams & members
            if near == reached:
                return reached == members
            reached = near

    def named(self, members: StreamSet) -> list[str]:
        """The names of the streams."""
        return [name for i, name in enumerate(self.names) if members >> i & 1]


def splits(members: StreamSet) -> Iterator[tuple[StreamSet, ...]]:
    """Every way to divide a set into two or more."""
    first = members & -members
    rest = members ^ first
    subset = rest
    # All subsets of the rest but itself: what stays with the first member.
    while subset:
        subset = (subset - 1) & rest
        remaining = rest ^ subset
        yield (first | subset, remaining)
        for parts in splits(remaining):
            yield (first | subset, *parts)
