"""Midstream: continuous multi-way joins on Apache Spark, built to change their plan while they run."""

from typing import TYPE_CHECKING, Any

from midstream.aggregate.user_function import udaf
from midstream.aggregate.window import window
from midstream.errors import (
    AggregateError,
    CheckpointError,
    FencedError,
    FormatError,
    InternalError,
    LockedError,
    MidstreamError,
    MigrationError,
    NoCheckpointError,
    NoSuchMethodError,
    OptionError,
    PlanError,
    QueryError,
    StreamError,
    WorkerError,
)
from midstream.plan.tree import Plan

if TYPE_CHECKING:
    from midstream.protocol.event import Event
    from midstream.protocol.problems import Problem
    from midstream.protocol.progress import EpochProgress
    from midstream.spark.join import Join
    from midstream.spark.query import JoinStreamingQuery

__version__ = "0.1.0"

__all__ = [
    "AggregateError",
    "CheckpointError",
    "EpochProgress",
    "Event",
    "FencedError",
    "FormatError",
    "InternalError",
    "Join",
    "JoinStreamingQuery",
    "LockedError",
    "MidstreamError",
    "MigrationError",
    "NoCheckpointError",
    "NoSuchMethodError",
    "OptionError",
    "Plan",
    "PlanError",
    "Problem",
    "QueryError",
    "StreamError",
    "WorkerError",
    "udaf",
    "window",
]


def __getattr__(name: str) -> Any:
    """Import what takes long only when it is used: the test kit and ``--help`` do without Spark."""
    if name == "EpochProgress":
        from midstream.protocol.progress import EpochProgress

        return EpochProgress
    if name == "Event":
        from midstream.protocol.event import Event

        return Event
    if name == "Problem":
        from midstream.protocol.problems import Problem

        return Problem
    if name == "Join":
        from midstream.spark.join import Join

        return Join
    if name == "JoinStreamingQuery":
        from midstream.spark.query import JoinStreamingQuery

        return JoinStreamingQuery
    raise AttributeError(f"module 'midstream' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names for users, also those that are not imported yet."""
    return sorted([*__all__, "__version__"])
