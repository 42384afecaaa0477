"""A process of a simulated run: what is remembered of it while others run."""

from __future__ import annotations

import random
from dataclasses import dataclass

from midstream.inline import InlineJoin
from midstream.testing.faults import FaultStore
from midstream.testing.random_streams import SECOND, START
from midstream.testing.store_sink import StoreSink


def newest_lease(store: FaultStore) -> int:
    """The number of the newest lease: that of the process which has taken over last."""
    names = (n for n in store.inner.files if n.startswith("leases/") and n.endswith(".json"))
    return max((int(name[-17:-5]) for name in names), default=0)


def wall_clock(rng: random.Random, epoch: int) -> int:
    """The wall-clock time of a process in an epoch, which may be wrong."""
    error_seconds = rng.choice((0, 0, 0, -3600, 3600, -86_400, 400 * 86_400))
    return START + (10 * epoch + 15 + error_seconds) * SECOND


@dataclass
class Process:
    """One process: a driver of the query, or a garbage collection."""

    lease: int = 0
    epoch: int = 0
    in_step: bool = False
    """Whether it is in the step of its epoch."""
    sinks: tuple[StoreSink, ...] = ()
    """Where it puts results."""
    query: InlineJoin | None = None
    """The query, once it is started: from then on users can make requests."""
    pausable: bool = True
