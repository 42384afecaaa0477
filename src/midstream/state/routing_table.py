"""The routing in the manifest: which engine partitions have which partition groups, now and before.

A new table moves no row. Rows stay in the slices of the partitions that stored them, and each slice says by
which table its rows were placed. So the tables tell who has them now (``engine/places.py``).
"""

from __future__ import annotations

import msgspec

Shares = tuple[int, ...]
"""In which proportion partitions have groups."""

KeyName = str
"""The key classes that place a fragment, such as ``0`` or ``0,2``: groups of one key are in one place,
whatever fragments, of several plans perhaps, it places."""


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the rows of a hot key are, if several partitions share them."""

    partitions: tuple[int, ...]
    stream: str
    """The stream whose rows are dealt out among them; each of them gets the rows of all others."""


class RoutingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """From an epoch on, all groups are divided among so many engine partitions, but for some."""

    since: int
    """The first epoch that ran with it."""
    partitions: int
    shares: Shares = ()
    """In which proportion they have groups; empty if each has as many as the others."""
    moved: dict[KeyName, dict[int, int]] = {}
    """Groups that were relocated, and the partitions that have them."""
    spread: dict[KeyName, dict[int, Spread]] = {}
    """Hot keys that several partitions share, by their hashes."""
    sites: dict[str, int] = {}
    """If streams live at sites: how many of the partitions each site has, one site after the other. There a
    name of key classes begins with the site, as in ``paris:0``."""
