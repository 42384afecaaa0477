"""Reading predicates: equalities, by which rows are joined, and residuals, which filter joined rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from midstream.errors import QueryError
from midstream.query import error_hints
from midstream.query.clauses import Equality, Residual
from midstream.query.sql import conjuncts, dotted_name, parse, show_sql
from midstream.query.stream import ColumnRef, Stream, resolve
from midstream.query.translate import Translator
from midstream.query.types import common_type, show_type, type_family


def read_predicate(text: str, streams: Sequence[Stream], zone: str) -> tuple[list[Equality], list[Residual]]:
    """Split the text of a predicate into equalities between two streams and residuals."""
    try:
        return _read(text, streams, zone)
    except RecursionError:
        raise QueryError(
            "a predicate must be nested less deeply",
            got=f"{len(text):,} characters that begin with {text[:40]!r}",
            hint="give several predicates, on(first, second, ...), or compute a column in the DataFrame",
        ) from None


def _read(text: str, streams: Sequence[Stream], zone: str) -> tuple[list[Equality], list[Residual]]:
    equalities: list[Equality] = []
    residuals: list[Residual] = []
    for part in conjuncts(parse(text, "a predicate")):
        equality = _equality(part, streams)
        if equality is not None:
            equalities.append(equality)
        else:
            residuals.append(_residual(part, streams, zone, text))
    return equalities, residuals


def compare_exactly(equality: Equality, streams: Sequence[Stream], zone: str) -> Residual:
    """The equality as a residual, which compares in the common type of the two columns alone."""
    tree = exp.EQ(this=_as_column(equality.left), expression=_as_column(equality.right))
    return Residual(str(equality), Translator(streams, zone, str(equality))(tree))


def _as_column(ref: ColumnRef) -> exp.Expr:
    return exp.Dot.build([exp.column(ref.stream), *(exp.to_identifier(p) for p in ref.path)])


def _equality(part: exp.Expr, streams: Sequence[Stream]) -> Equality | None:
    if not isinstance(part, exp.EQ):
        return None
    names = [dotted_name(side.unnest()) for side in (part.this, part.expression)]
    if names[0] is None or names[1] is None:
        return None
    left, right = (resolve(streams, name) for name in names if name)
    if left.stream == right.stream:
        return None
    by_name = {stream.name: stream for stream in streams}
    dtypes = [by_name[ref.stream].type_of(ref) for ref in (left, right)]
    if common_type(dtypes) is None:
        raise QueryError(
            f"both sides must have types that compare: {left} = {right}",
            got=" and ".join(show_type(dtype) for dtype in dtypes),
            hint=error_hints.for_equality(*dtypes),
        )
    return Equality(left, right)


def _residual(part: exp.Expr, streams: Sequence[Stream], zone: str, text: str) -> Residual:
    """A conjunct of a predicate; ``text`` is the predicate as the user wrote it."""
    translator = Translator(streams, zone, text)
    expression = translator(part)
    # In a form that stays the same however it was written: a restart compares it.
    residual = Residual(part.sql(dialect="spark"), expression)
    if type_family(expression.type) != "boolean":
        raise QueryError(
            "a predicate must be true or false",
            got=f"{show_sql(part)} of type {show_type(translator.own_type(expression))}",
            hint="write a comparison, e.g. a.x < b.y",
        )
    if len(residual.streams) < 2:
        raise QueryError(
            "a predicate must be over two or more streams",
            got=show_sql(part),
            hint="filter the DataFrame of the stream before the join"
            if residual.streams
            else "leave it out: it says nothing about the rows",
        )
    return residual
