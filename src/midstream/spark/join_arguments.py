"""Arguments of a join's methods, as those who know PySpark write them: taken, or refused at that call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn

from midstream.errors import QueryError, show_value
from midstream.query.sql import split_name
from midstream.query.stream import Stream, resolve_path


def check_texts(what: str, items: Iterable[object], *, hint: str) -> None:
    """Refuse what is not text. A ``Column`` does not say which stream of the join it is of."""
    for item in items:
        if not isinstance(item, str):
            raise QueryError(f"{what} must be text", got=_show(item), hint=hint)


def check_inner(how: str) -> None:
    """Refuse anything but an inner join."""
    if how != "inner":
        raise QueryError(
            "a join must be 'inner'",
            got=show_value(how),
            hint="outer joins are not there yet; for all combinations of rows write .cross()",
        )


def equalities(names: Sequence[str], streams: Sequence[Stream]) -> list[str]:
    """Predicates that make columns of some names equal in all streams, as a list of names in Spark's join."""
    check_texts("the name of a column", names, hint="write on(['id']), or on('a.x = b.y')")
    if len(streams) < 2:
        raise QueryError(
            "a list of columns must come after the streams that have them",
            got=f"{list(names)} after {len(streams)} of them",
            hint="call .stream(...) first, or write on('a.x = b.y')",
        )
    texts: list[str] = []
    for name in names:
        first, *others = (resolve_path(s.name, s.schema, name_parts(name, s.schema)) for s in streams)
        texts += [f"{first} = {other}" for other in others]
    return texts


def name_parts(column: str | Column, schema: pa.Schema) -> tuple[str, ...]:
    """The name of a column, or of a field inside one, by its text or by a ``Column`` that is just a name."""
    if isinstance(column, str):
        return (column,) if column in schema.names else split_name(column)
    if isinstance(column, ClassicColumn):
        node = column._jc.node()
        if node.getClass().getSimpleName() == "UnresolvedAttribute":
            return tuple(node.nameParts().mkString("\0").split("\0"))
    raise QueryError(
        "a column must be given by its name",
        got=_show(column),
        hint="add what is computed to the DataFrame, with withColumn, and give the name",
    )


def _show(item: object) -> str:
    """What a user gave; a ``Column`` says itself what it is."""
    return repr(item) if isinstance(item, Column) else show_value(item)
