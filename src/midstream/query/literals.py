"""Reading the literals of predicates: numbers, text, dates and times."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
from sqlglot import exp

from midstream.errors import QueryError
from midstream.query.expression import Constant
from midstream.query.types import TIMESTAMP

_WITH_ZONE = ("timestamptz", "timestamp", "timestampltz")


def number_or_text(tree: exp.Expr) -> Constant | None:
    """A literal without a type; None for a whole number that does not fit into 64 bits."""
    if tree.is_string:
        return Constant(tree.this, pa.string())
    number = Decimal(tree.this)
    if "e" in tree.this.lower():
        return Constant(float(number), pa.float64())
    digits, exponent = number.as_tuple().digits, int(number.as_tuple().exponent)
    if exponent < 0:
        return Constant(number, pa.decimal128(max(len(digits), -exponent), -exponent))
    return Constant(int(number), pa.int64()) if number < 2**63 else None


def typed_literal(tree: exp.Expr, zone: str, text: str) -> Constant | None:
    """DATE '...', TIMESTAMP '...', TIMESTAMP_NTZ '...' and numbers with a suffix; None for any other cast.

    ``zone`` is the time zone of literals without one; ``text`` is the predicate, for error messages.
    """
    target = tree.args["to"]
    if not isinstance(tree.this, exp.Literal):
        return None
    if not tree.this.is_string:
        return _with_suffix(tree.this, target)
    if not target.is_type("date", "timestampntz", *_WITH_ZONE):
        return None
    try:
        if target.is_type("date"):
            return Constant(date.fromisoformat(tree.this.this), pa.date32())
        moment = datetime.fromisoformat(tree.this.this)
    except ValueError:
        is_date = target.is_type("date")
        raise QueryError(
            f"a literal must be a valid date or time: {text}",
            got=repr(tree.this.this),
            hint="write DATE '2026-03-01'" if is_date else "write TIMESTAMP '2026-03-01 12:00:00'",
        ) from None
    if target.is_type("timestampntz"):
        return Constant(moment.replace(tzinfo=None), pa.timestamp("us"))
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    return Constant(moment.astimezone(UTC), TIMESTAMP)


def _with_suffix(number: exp.Literal, target: exp.Expr) -> Constant | None:
    """1L, 2S, 1.5D, which sqlglot parses as casts of the number."""
    if target.is_type("double", "float"):
        return Constant(float(number.this), pa.float64())
    constant = number_or_text(number)
    is_integer = constant is not None and pa.types.is_integer(constant.type)
    return constant if is_integer and target.is_type("bigint", "smallint", "tinyint") else None
