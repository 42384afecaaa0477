"""Hot keys: which of them partitions share, and by which stream their rows are dealt out.

A key has all its rows in one partition, so one with a large share of the work keeps that partition busy while
others wait. Shared by several partitions, the rows of one stream are dealt out among them, and each gets all
rows of the other streams. What the other streams' rows cost is paid several times, so the stream is the one
that makes this cheapest.

Keys are shared when one partition does much more than the others do on average, and gathered again when they
are no longer hot. Both follow from the committed statistics: how much each partition has worked lately, and
how many rows of each stream have a key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from midstream.adapt.statistics import decay_seconds, entries
from midstream.engine.group_counts import GroupFigures
from midstream.engine.hashing import Hashes
from midstream.engine.key_sample import Rows
from midstream.engine.places import Places, key_name
from midstream.memory.balance import BalanceSettings
from midstream.memory.next_step import MemoryContext
from midstream.plan.layout import Key, key_column
from midstream.query.query import Query
from midstream.state.balance import Balance, HotKeyChange
from midstream.state.routing_table import KeyName, Spread
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND

OVERLOAD = 2.0
"""Without ``balance``, keys are shared if a partition does more than so many times what others do."""
MIN_WORK = 200_000.0
"""Units of work, 10 ms, that the busiest partition has done lately: less is not worth it."""
# The part of a fair share of all work above which a key is hot, until it has less than half of that.
_HOT_SHARE = 0.25
_HOT = "one partition did much more than the others"
_COOLED = "it is no longer hot"
_MIGRATION = "a migration has begun"
_FIGURE = np.dtype("<f4")


@dataclass(frozen=True)
class HotKeyDecision:
    """The hot keys that partitions share from the next epoch on."""

    spread: Mapping[KeyName, Mapping[int, Spread]] | None = None
    """None if that stays as it is."""
    changes: tuple[HotKeyChange, ...] = ()


@dataclass(frozen=True)
class _KeyShares:
    """The keys of a class that many rows have: their shares of the work, and rows by stream."""

    shares: dict[int, float] = field(default_factory=dict)
    rows: dict[int, dict[str, float]] = field(default_factory=dict)


def spread_streams(context: MemoryContext, key: Key) -> frozenset[str]:
    """The streams whose rows of a key may be dealt out: those that every fragment of this key joins.

    A fragment that does not join the stream would make the same rows in every partition.
    """
    joined = [
        {stream for input_ in fragment.inputs for stream in input_.streams}
        for layout in context.layouts
        for fragment in layout.fragments
        if fragment.key == key
    ]
    return frozenset(set.intersection(*joined)) if joined else frozenset()


def add_work(
    query: Query,
    places: Places,
    before: Balance,
    work: Mapping[int, float],
    seconds: float,
    latest: int | None,
) -> Balance:
    """The balance after an epoch in which partitions have worked, and ``seconds`` of event time passed."""
    if len(before.work) != _FIGURE.itemsize * places.partitions:
        before = replace(before, work_since=latest)
    faded = _work(before, places.partitions) * math.exp(-seconds / decay_seconds(query))
    for partition, units in work.items():
        faded[partition] += units
    return replace(before, work=faded.astype(_FIGURE).tobytes())


def decide_hot_keys(
    context: MemoryContext, settings: BalanceSettings, statistics: Statistics, before: Balance
) -> HotKeyDecision:
    """Which hot keys are shared from the next epoch on."""
    partitions, now = context.places.partitions, context.places.tables[-1].spread
    work = _work(before, partitions)
    is_overloaded = _is_overloaded(context, settings, before, work)
    if partitions == 1 or not (now or is_overloaded):
        return HotKeyDecision()
    spread: dict[KeyName, dict[int, Spread]] = {}
    changes: list[HotKeyChange] = []
    for key_class in sorted({f.key[0] for f in context.plan.fragments if len(f.key) == 1}):
        key, fair = (key_class,), 1 / partitions
        name, known = key_name(key), _key_shares(context, statistics, key_class)
        streams = spread_streams(context, key) & context.query.classes[key_class].streams
        shared = spread.setdefault(name, {})
        for hot, place in now.get(name, {}).items():
            share = known.shares.get(hot, 0.0)
            if share >= _HOT_SHARE * fair / 2:
                shared[hot] = place
            else:
                changes.append(HotKeyChange("gathered", name, hot, 1, "", share, _COOLED))
        for hot, share in known.shares.items() if is_overloaded and streams else ():
            if hot not in shared and share > _HOT_SHARE * fair:
                count = min(partitions, max(2, math.ceil(share * partitions / _HOT_SHARE)))
                stream = _cheapest_stream(context, key, sorted(streams), known.rows[hot], count)
                shared[hot] = Spread(_partitions(context, key, hot, work, count), stream)
                changes.append(HotKeyChange("spread", name, hot, count, stream, share, _HOT))
    return HotKeyDecision(spread, tuple(changes)) if changes else HotKeyDecision()


def gather_all(context: MemoryContext) -> HotKeyDecision:
    """No key is shared from the next epoch on: a migration sends each row to one partition."""
    changes = tuple(
        HotKeyChange("gathered", name, hot, 1, "", 0.0, _MIGRATION)
        for name, keys in context.places.tables[-1].spread.items()
        for hot in keys
    )
    return HotKeyDecision({}, changes) if changes else HotKeyDecision()


def _work(balance: Balance, partitions: int) -> GroupFigures:
    """How much each partition has worked lately, in units; nothing if there were others then."""
    work = np.frombuffer(balance.work, _FIGURE).astype(np.float64)
    return work if len(work) == partitions else np.zeros(partitions)


def _is_overloaded(
    context: MemoryContext, settings: BalanceSettings, before: Balance, work: GroupFigures
) -> bool:
    """Whether a partition has done much more than the others, for long enough."""
    busiest, partitions = float(work.max()), len(work)
    if partitions == 1 or busiest < MIN_WORK or context.latest is None or before.work_since is None:
        return False
    others = (float(work.sum()) - busiest) / (partitions - 1)
    measured = context.latest - before.work_since
    if settings.mode != "off":
        return others < settings.threshold * busiest and measured >= settings.pause
    window = 2 * decay_seconds(context.query) * MICROS_PER_SECOND
    return busiest > OVERLOAD * others and measured >= (window if window < math.inf else settings.pause)


def _key_shares(context: MemoryContext, statistics: Statistics, key_class: int) -> _KeyShares:
    """What is known of the keys of a class that many rows have.

    The work for a key is that for its rows, and for pairs of them.
    """
    frequent = np.frombuffer(statistics.frequent_keys.get(key_class, b""), "<u8")
    if not len(frequent):
        return _KeyShares()
    rows: dict[str, tuple[Hashes, Rows]] = {}
    threshold = 1.0
    for stream in context.query.classes[key_class].streams:
        if stream not in statistics.streams:
            continue
        counted = statistics.streams[stream].keys.get(key_column(stream, key_class))
        if counted is not None:
            sample = entries(counted)
            keys, where = np.unique(sample.keys, return_inverse=True)
            rows[stream] = keys, np.bincount(where, sample.rows, len(keys)).astype(np.float64)
            threshold = min(threshold, counted.threshold)
    if not rows:
        return _KeyShares()
    keys = np.unique(np.concatenate([keys for keys, _ in rows.values()]))
    by_stream = {stream: _at(keys, *counted) for stream, counted in rows.items()}
    total = np.add.reduce(list(by_stream.values()))
    squares = np.add.reduce([of_stream**2 for of_stream in by_stream.values()])
    work = total + (total**2 - squares) / 2
    is_frequent = np.isin(keys, frequent)
    # Other keys are in the sample by the share that the threshold says.
    everything = float(work[is_frequent].sum() + work[~is_frequent].sum() / threshold)
    shares, by_key = {}, {}
    for position in np.flatnonzero(is_frequent).tolist():
        hot = int(keys[position])
        shares[hot] = float(work[position]) / everything if everything else 0.0
        by_key[hot] = {stream: float(of_stream[position]) for stream, of_stream in by_stream.items()}
    return _KeyShares(shares, by_key)


def _at(keys: Hashes, known: Hashes, rows: Rows) -> Rows:
    """The rows of all keys, given those of some, which are among them."""
    at = np.zeros(len(keys))
    at[np.searchsorted(keys, known)] = rows
    return at


def _cheapest_stream(
    context: MemoryContext, key: Key, streams: list[str], rows: Mapping[str, float], count: int
) -> str:
    """The stream by which a partition has least to do, if its rows of a key are dealt out among several."""
    nodes = [node for fragment in context.plan.fragments if fragment.key == key for node in fragment.nodes]

    def work(dealt: str) -> float:
        stored = sum(number / (count if stream == dealt else 1) for stream, number in rows.items())
        joined = 0.0
        for node in nodes:
            combined = math.prod(max(rows.get(stream, 1.0), 1.0) for stream in node.id.streams)
            joined += combined / (count if dealt in node.id.streams else 1)
        return stored + joined

    return min(streams, key=lambda stream: (work(stream), stream))


def _partitions(
    context: MemoryContext, key: Key, hot: int, work: GroupFigures, count: int
) -> tuple[int, ...]:
    """The partitions that share a key: the one that has it, and those that have worked least."""
    owner = int(context.places.routing(key).targets(np.array([hot], np.uint64))[0])
    others = sorted((p for p in range(len(work)) if p != owner), key=lambda p: (work[p], p))
    return (owner, *others[: count - 1])
