"""Triggers: when Spark runs the next micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from midstream.errors import QueryError
from midstream.values import duration


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """When micro-batches run, in Spark's terms; if nothing is set, as soon as the last one has ended."""

    processing_time: str | None = None
    available_now: bool | None = None
    once: bool | None = None

    def arguments(self) -> dict[str, Any]:
        """What is set, as arguments of Spark's own ``trigger``."""
        named = {
            "processingTime": self.processing_time,
            "availableNow": self.available_now,
            "once": self.once,
        }
        return {name: value for name, value in named.items() if value is not None}

    def interval_ms(self) -> float | None:
        """Milliseconds between triggers, if they are known."""
        if self.processing_time is None:
            return None
        try:
            return duration(self.processing_time, "processingTime") / 1000
        except QueryError:
            return None  # Spark may accept a form that we do not
