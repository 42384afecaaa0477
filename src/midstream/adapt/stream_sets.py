"""Sets of streams as the optimizer handles them: bit masks, with the costs and keys of each computed once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from midstream.adapt.cost import CostModel
from midstream.adapt.estimate import Estimator, Streams

StreamMask = int
"""A set of streams: a bit for each, the first stream of the query being the lowest."""
ClassMask = int
"""A set of key classes: a bit for each, by its id."""

# Below any rate that a stream has, so that a growth per row is finite.
_MIN_RATE = 1e-12
# Streams that are asked how many rows one of theirs becomes: each answer is the estimate of another join.
_MAX_GROWN_STREAMS = 7

T = TypeVar("T")


class _Lookup(dict[StreamMask, T]):
    """A value for each set of streams, computed when it is first asked for."""

    def __init__(self, compute: Callable[[StreamMask], T]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, members: StreamMask) -> T:
        value = self[members] = self._compute(members)
        return value


class StreamSets:
    """The sets of a query's streams; costs are in units per second."""

    def __init__(self, estimator: Estimator) -> None:
        query, model = estimator.query, CostModel(estimator)
        weights = model.weights
        self.names = query.names
        self.all_streams: StreamMask = (1 << len(self.names)) - 1
        self.streams: list[StreamMask] = [1 << i for i in range(len(self.names))]
        self._class_streams = [sum(1 << self.names.index(name) for name in c.streams) for c in query.classes]

        def members_of(members: StreamMask) -> Streams:
            return frozenset(self.names_of(members))

        def probe_units(members: StreamMask, probing: float, matched: float) -> float:
            step = model.probe_step(members_of(members), probing_rows=probing, matched_rows=matched)
            return step.units(weights)

        def rate_of(members: StreamMask) -> float:
            self.estimated += self.effort(members)
            return estimator.rate(members_of(members))

        self.estimated = 0
        """The effort of all estimates so far."""
        self.rate = _Lookup(rate_of)
        """Rows of the join per second."""
        self.rate_by_newest = _Lookup(lambda members: self.rate[members] / members.bit_count())
        """Those whose newest component is of one particular stream."""
        self.probe_cost = _Lookup(lambda members: probe_units(members, probing=1, matched=0))
        """One row searches the state of the set."""
        self.match_cost = _Lookup(lambda members: probe_units(members, probing=0, matched=1))
        """One live row of that state is matched."""
        self.index_cost = _Lookup(lambda members: model.index(members_of(members)).units(weights))
        """The state is kept in the order of one key."""
        self.input_cost = _Lookup(lambda members: model.fragment_input(members_of(members)).units(weights))
        """The rows enter a fragment."""
        self.forwarding_cost = _Lookup(lambda members: model.forwarding(members_of(members)).units(weights))
        """The rows of a stream pass through one more stage."""
        self.state_bytes = _Lookup(lambda members: model.state_bytes(members_of(members)))
        """The size of the state."""
        self.classes: _Lookup[ClassMask] = _Lookup(self._classes)
        """The key classes that some of the streams have."""
        self.growth = _Lookup(self._growth)
        """How many rows one row becomes that probes the set."""

    def names_of(self, members: StreamMask) -> list[str]:
        """The names of the streams."""
        return [name for i, name in enumerate(self.names) if members >> i & 1]

    def mask_of(self, streams: Streams) -> StreamMask:
        """The set of the streams with these names."""
        return sum(1 << i for i, name in enumerate(self.names) if name in streams)

    def effort(self, members: StreamMask) -> int:
        """How laborious it is to estimate a join: by the cube of the number of streams of each key class.

        To extend a sample of joined rows by a stream, its times are compared with those of all others,
        and the join of fewer streams has to be made before.
        """
        return sum((streams & members).bit_count() ** 3 for streams in self._class_streams)

    def _classes(self, members: StreamMask) -> ClassMask:
        return sum(1 << i for i, streams in enumerate(self._class_streams) if streams & members)

    def _growth(self, members: StreamMask) -> float:
        """The average over a few single streams that share a key class with the set."""
        classes = self.classes[members]
        sharing = (s for s in self.streams if not s & members and self.classes[s] & classes)
        # The larger the set, the longer each estimate takes.
        others = list(islice(sharing, max(_MAX_GROWN_STREAMS // members.bit_count(), 1)))
        growths = [self.rate[s | members] / max(self.rate[s], _MIN_RATE) for s in others]
        return sum(growths) / max(len(growths), 1)
