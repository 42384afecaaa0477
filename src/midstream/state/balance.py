"""Balance in the manifest: what was done lately to divide the work and the state evenly among partitions."""

from __future__ import annotations

from typing import Literal

import msgspec

from midstream.state.routing_table import KeyName


class Relocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Groups of a key that an epoch has given to another partition."""

    key: KeyName
    groups: int
    bytes: int
    """Their active state, which changes hands."""
    sender: int
    receiver: int
    ratio: float
    """How much state the receiver had, as a share of what the sender had."""


class HotKeyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hot key that partitions share from an epoch on, or share no longer."""

    action: Literal["spread", "gathered"]
    key: KeyName
    hash: int
    partitions: int
    """How many have it from now on."""
    stream: str
    """The stream whose rows are dealt out among them; empty if one partition has all."""
    share: float
    """Of all work for the rows of the key's fragments, that for this one."""
    reason: str


class Balance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was decided lately, and from which figures the next decision follows besides."""

    decided_at: int | None = None
    """The newest event time when groups were last relocated, or spilled for the sake of other partitions."""
    forced_bytes: int = 0
    """How much was spilled for the sake of other partitions, since last no group was spilled."""
    relocations: tuple[Relocation, ...] = ()
    """Of this epoch."""
    hot_keys: tuple[HotKeyChange, ...] = ()
    """Of this epoch."""
    work: bytes = b""
    """The work of each partition lately, faded: 4 bytes each, floating-point, little-endian."""
    work_since: int | None = None
    """The newest event time when it began to be measured: after the last change of what is shared."""
