"""Key classes: the columns that the equalities make equal to each other.

``a.id = b.id`` and ``b.id = c.ref`` put three columns into one class; every result has one value of the
class. A node of a plan joins its inputs on the classes that they share, so rows are placed by classes.

All columns of a class are stored in one common type. Where that is coarser than the common type of two
columns alone (two bigints made equal through a double), their equality is also checked as a residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from midstream.errors import QueryError
from midstream.query.clauses import Equality
from midstream.query.stream import ColumnRef, Stream
from midstream.query.types import common_type, fits_in_hash, show_type


@dataclass(frozen=True)
class KeyClass:
    """Columns with one value in every result. ``members`` of the same stream must equal each other too."""

    id: int
    type: pa.DataType
    members: tuple[ColumnRef, ...]

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams that have a column in the class."""
        return frozenset(ref.stream for ref in self.members)

    @property
    def exact_hash(self) -> bool:
        """Whether equal hashes of the class mean equal values."""
        return fits_in_hash(self.type)

    def of(self, stream: str) -> tuple[ColumnRef, ...]:
        """The stream's columns in the class."""
        return tuple(ref for ref in self.members if ref.stream == stream)

    def __str__(self) -> str:
        return " = ".join(map(str, self.members))


def key_classes(
    equalities: Sequence[Equality], streams: Sequence[Stream]
) -> tuple[tuple[KeyClass, ...], tuple[Equality, ...]]:
    """Group the equalities into classes; also return those for which the type of the class is too coarse."""
    by_name = {stream.name: stream for stream in streams}
    groups: list[set[ColumnRef]] = []
    for equality in equalities:
        ends = {equality.left, equality.right}
        touching = [group for group in groups if group & ends]
        groups = [group for group in groups if not group & ends]
        groups.append(ends.union(*touching))
    classes: list[KeyClass] = []
    order = {stream.name: i for i, stream in enumerate(streams)}
    # Ids follow the order of the equalities, so that the same query has the same ids.
    position = {ref: i for i, e in enumerate(equalities) for ref in (e.right, e.left)}
    for group in sorted(groups, key=lambda group: min(position[ref] for ref in group)):
        members = sorted(group, key=lambda ref: (order[ref.stream], ref.path))
        dtype = common_type(by_name[ref.stream].type_of(ref) for ref in members)
        if dtype is None:
            raise QueryError(
                "columns that are made equal must have types that all compare",
                got=", ".join(f"{r} {show_type(by_name[r.stream].type_of(r))}" for r in members),
                hint="cast some of them in their DataFrames before the join",
            )
        classes.append(KeyClass(len(classes), dtype, tuple(members)))
    coarse = tuple(e for e in equalities if _is_coarse(e, classes, by_name))
    return tuple(classes), coarse


def _is_coarse(equality: Equality, classes: Sequence[KeyClass], by_name: dict[str, Stream]) -> bool:
    """Whether two columns that differ could be equal in the type of their class."""
    pair_type = common_type(by_name[r.stream].type_of(r) for r in (equality.left, equality.right))
    class_type = next(c.type for c in classes if equality.left in c.members)
    # Wider integers and decimals keep different values different. A double does not, nor does an instant
    # for local times around a daylight-saving change.
    is_lossy = pa.types.is_floating(class_type) or pa.types.is_timestamp(class_type)
    return pair_type != class_type and bool(is_lossy)
