"""Rows on their way to an input of a fragment, in an engine partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from midstream.plan.state_id import StateId

RowsKind = Literal["arriving", "copied", "replayed", "backfill", "pending", "results", "partials"]
"""*Arriving* rows are new in this epoch, and so are *copied* ones, which another partition counts: partitions
that share a hot key need them all. *Replayed* rows are new to a box, but were accepted and counted by the one
that it replaces. *Backfill* rows are older: the input's state lacked them and gets
them now. *Pending* rows are older too, but stay separate until the state is complete. *Results* enter no
state: they go, in their partition, to the fragment from which all results leave. *Partials* are aggregates
of results, on their way to where their groups are merged."""

Arrivals = Mapping[tuple[StateId, RowsKind], Sequence[pa.Table]]
"""The rows that reach a partition, by input and kind."""


class RoutedRows(NamedTuple):
    """Rows on their way to ``input`` in ``partition``."""

    partition: int
    input: StateId
    kind: RowsKind
    table: pa.Table
