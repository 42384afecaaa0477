"""Triggers: when Spark runs the next micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from midstream.errors import OptionError, show_value
from midstream.spark.option_readers import a_duration
from midstream.values import Micros


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """When micro-batches run, in Spark's terms; if nothing is set, as soon as the last one has ended."""

    processing_time: Micros | None = None
    available_now: bool = False
    once: bool = False

    def arguments(self) -> dict[str, Any]:
        """What is set, as arguments of Spark's own ``trigger``."""
        if self.processing_time is not None:
            return {"processingTime": f"{self.processing_time} microseconds"}
        return {
            n: True for n, is_set in (("availableNow", self.available_now), ("once", self.once)) if is_set
        }

    def interval_ms(self) -> float | None:
        """Milliseconds between triggers, if they are known."""
        return None if self.processing_time is None else self.processing_time / 1000


def read_trigger(**arguments: Any) -> Trigger:
    """The trigger that arguments of Spark's own ``trigger`` ask for; those that are None were not given."""
    given = {name: value for name, value in arguments.items() if value is not None}
    unknown = [f"{name}={given[name]!r}" for name in given if name in ("continuous", "realTime")]
    if unknown or len(given) != 1:
        raise OptionError(
            "a trigger must be one of processingTime, availableNow and once",
            got=" and ".join(unknown or given) or "none",
            hint="without a trigger micro-batches follow each other without a pause"
            if unknown
            else "write e.g. .trigger(processingTime='10 seconds')",
        )
    ((name, value),) = given.items()
    if name == "processingTime":
        return Trigger(processing_time=a_duration(name, value))
    if value is not True:
        raise OptionError(f"{name} must be True", got=show_value(value), hint=f"leave {name} out")
    return Trigger(available_now=name == "availableNow", once=name == "once")
