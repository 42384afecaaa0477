"""Reading outputs: which columns the results have, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from midstream.errors import QueryError
from midstream.query.clauses import Output
from midstream.query.sql import dotted_name, parse
from midstream.query.stream import ColumnRef, Stream, resolve


def read_outputs(items: Sequence[str], streams: Sequence[Stream]) -> tuple[Output, ...]:
    """Read ``stream.column [AS name]`` items; without any, every column of every stream is an output."""
    named: list[tuple[str, ColumnRef]] = []
    for item in items or [f"`{stream.name}`.*" for stream in streams]:
        named += _read(item, streams)
    outputs: dict[str, Output] = {}
    by_name = {stream.name: stream for stream in streams}
    for name, ref in named:
        # Spark resolves names without regard to case, so two that differ only in case would be ambiguous.
        if name.lower() in outputs:
            raise QueryError(
                "every output column must have a name of its own",
                got=f"{name!r} for {outputs[name.lower()].ref} and for {ref}",
                hint=f"write '{ref} AS another_name' in select",
            )
        outputs[name.lower()] = Output(name, ref, by_name[ref.stream].type_of(ref))
    return tuple(outputs.values())


def _read(item: str, streams: Sequence[Stream]) -> list[tuple[str, ColumnRef]]:
    tree = parse(item, "a select item")
    alias = tree.alias if isinstance(tree, exp.Alias) else None
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    name = dotted_name(inner)
    if isinstance(inner, exp.Star):
        raise QueryError(
            "'*' must follow the name of a stream",
            got=repr(item),
            hint=f"leave select out for all columns, or write {', '.join(f'{s.name}.*' for s in streams)}",
        )
    if name is None:
        raise QueryError(
            "a select item must be stream.column or stream.column AS name",
            got=repr(item),
            hint="compute new columns in the DataFrames, or on the results",
        )
    # A column may be called '*', too: then it is in backquotes.
    if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
        if alias is not None:
            raise QueryError(
                "'*' must have no name: it stands for several columns",
                got=repr(item),
                hint="name the columns one by one, as in 'a.x AS y'",
            )
        stream = next((s for s in streams if s.name.lower() == name[0].lower()), None)
        if len(name) != 2 or stream is None:
            raise QueryError(
                "'*' must follow the name of a stream",
                got=repr(item),
                hint=f"the streams are {', '.join(s.name for s in streams)}",
            )
        refs = [ColumnRef(stream.name, (column,)) for column in stream.schema.names]
    else:
        refs = [resolve(streams, name)]
    return [(alias or "_".join((ref.stream, *ref.path)), ref) for ref in refs]
