"""A process of a simulated run: what is remembered of it while others run."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.inline import InlineJoin
from midstream.testing.faults import FaultStore
from midstream.testing.store_sink import StoreSink


def newest_lease(store: FaultStore) -> int:
    """The number of the newest lease: that of the process which has taken over last."""
    names = (n for n in store.inner.files if n.startswith("leases/") and n.endswith(".json"))
    return max((int(name[-17:-5]) for name in names), default=0)


@dataclass
class Process:
    """One process: a driver of the query, or a garbage collection."""

    lease: int = 0
    epoch: int = 0
    in_step: bool = False
    """Whether it is in the step of its epoch."""
    results: StoreSink | None = None
    query: InlineJoin | None = None
    """The query, once it is started: from then on users can make requests."""
    pausable: bool = True
