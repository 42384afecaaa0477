"""The record of one option: name, default, reader and meaning in one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from midstream.spark.option_readers import Reader

T = TypeVar("T")
DefaultT = TypeVar("DefaultT")
Restart = Literal["yes", "no", "if the folder moves with it"]
RECORD = "option"
"""Where the metadata of a dataclass field has the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Generic[T]):
    """One option, as users and the guide know it."""

    name: str
    default: T
    shown_default: str
    """The default in the guide: the text that reads as it, or words if the default is None."""
    read: Reader[T]
    may_change: Restart
    """Whether it may change when a query is started again; the guide says so in these words."""
    meaning: str
    sink: str | None
    """The one sink that uses it, if it is for a sink."""


def option(
    name: str,
    *,
    default: DefaultT,
    shown: str,
    read: Reader[T],
    may_change: Restart,
    meaning: str,
    sink: str | None = None,
) -> DefaultT | T:
    """A field of a dataclass of options. Its type must allow the default and all that is read."""
    record: Option[DefaultT | T] = Option(
        name=name,
        default=default,
        shown_default=shown,
        read=read,
        may_change=may_change,
        meaning=meaning,
        sink=sink,
    )
    return field(default=default, metadata={RECORD: record})
