"""The routing in the manifest: how many engine partitions share the partition groups, now and before.

Changing the number of partitions moves no row. Rows stay in the slices of the partitions that stored them,
and each slice says by which table its rows were placed. So the tables tell who has them now
(``engine/places.py``).
"""

from __future__ import annotations

import msgspec


class RoutingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From an epoch on, all groups are divided evenly among so many engine partitions."""

    since: int
    """The first epoch that ran with it."""
    partitions: int
