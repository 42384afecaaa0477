"""The settings of a budget of memory."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.values import Micros

SPILL_SHARE = 0.3
"""The share of active state that is spilled at once, as in the papers."""


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How a query lives within a budget."""

    budget: int
    """Bytes of active state in each engine partition."""
    strategy: str = "global_output_penalty"
    """Which groups are spilled first (``memory/strategies.py``)."""
    spill_share: float = SPILL_SHARE
    cleanup_delay: Micros | None = None
    """How much event time may pass before what a group owes is made; None for one window."""
