"""Events about places: groups and hot keys that other engine partitions have now, and their number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from midstream.protocol.event import Event, pluralized
from midstream.state.manifest import Manifest


class StateRelocated(Event, frozen=True, kw_only=True, tag="state-relocated"):
    """Groups have another partition from this epoch on: the steps of the papers' protocol in one commit."""

    template: ClassVar[str] = (
        "relocated {counted} of key {key}, {bytes:,} bytes, from partition {sender} to {receiver}, which had "
        "{ratio:.0%} of its active state"
    )

    key: str
    """The key classes that place them."""
    groups: int
    bytes: int
    sender: int
    receiver: int
    ratio: float

    @property
    def message(self) -> str:
        """The event as a text for people."""
        return self.template.format(counted=pluralized(self.groups, "group"), **msgspec.structs.asdict(self))


class HotKeyEvent(Event, frozen=True, kw_only=True):
    """Something that was done about a hot key."""

    key: str
    """The key class."""
    hash: int
    partitions: int
    stream: str
    share: float
    reason: str


class HotKeySpread(HotKeyEvent, frozen=True, kw_only=True, tag="hot-key-spread"):
    """Partitions share a key from now on."""

    template: ClassVar[str] = (
        "the key of class {key} with hash {hash}, which makes {share:.0%} of the work, is shared by "
        "{partitions} partitions, and rows of {stream} are dealt out among them: {reason}"
    )


class HotKeyGathered(HotKeyEvent, frozen=True, kw_only=True, tag="hot-key-gathered"):
    """One partition has a key again that several had shared."""

    template: ClassVar[str] = "one partition has the key of class {key} with hash {hash} again: {reason}"


_HOT_KEY_EVENTS: dict[str, type[HotKeyEvent]] = {"spread": HotKeySpread, "gathered": HotKeyGathered}


class Rescaled(Event, frozen=True, kw_only=True, tag="rescaled"):
    """The number of engine partitions has changed."""

    template: ClassVar[str] = "the state is in {partitions} engine partitions now, instead of {before}"

    before: int
    partitions: int


class RescaleWaits(Event, frozen=True, kw_only=True, tag="rescale-waits"):
    """Another number of engine partitions that was requested waits."""

    template: ClassVar[str] = (
        "the change to {partitions} engine partitions waits until rows have expired that a migration of an "
        "earlier version has moved"
    )

    partitions: int


def place_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    """What has changed places in the epoch that led from one manifest to the next."""
    yield from _rescale_events(before, after)
    yield from _balance_events(after)


def _rescale_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    former, partitions = before.routings[-1].partitions, after.routings[-1].partitions
    if partitions != former:
        yield Rescaled(batch_id=after.epoch, before=former, partitions=partitions)
    waiting = after.waiting_partitions
    if waiting and waiting != before.waiting_partitions:
        yield RescaleWaits(batch_id=after.epoch, partitions=waiting)


def _balance_events(after: Manifest) -> Iterator[Event]:
    for moved in after.balance.relocations:
        yield StateRelocated(batch_id=after.epoch, **msgspec.structs.asdict(moved))
    for change in after.balance.hot_keys:
        fields = msgspec.structs.asdict(change)
        yield _HOT_KEY_EVENTS[fields.pop("action")](batch_id=after.epoch, **fields)
