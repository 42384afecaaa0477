"""Rows on their way to an input of a fragment, in an engine partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from midstream.plan.state_id import StateId

RowsKind = Literal["arriving", "missing", "pending"]
"""What rows are to the input's state: *arriving* ones are new in this epoch; *missing* ones belong to it
already and are added now; *pending* ones do too, but stay apart until its rebuild is complete."""

Arrivals = Mapping[tuple[StateId, RowsKind], Sequence[pa.Table]]
"""What reaches a partition, by input and kind."""


class RoutedRows(NamedTuple):
    """Rows on their way."""

    partition: int
    input: StateId
    kind: RowsKind
    table: pa.Table
