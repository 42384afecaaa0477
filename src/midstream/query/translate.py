"""Translating parsed trees into expressions, by an allow-list.

Whatever has no entry in the tables below is refused by name: sub-queries, other functions, lambdas, casts of
anything but a literal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from sqlglot import exp

from midstream.errors import QueryError
from midstream.query import hints, literals
from midstream.query.arithmetic import INTERVAL, arithmetic_type, comparison_type
from midstream.query.expression import Call, Column, Constant, Expression, Operator
from midstream.query.intervals import interval_literal
from midstream.query.sql import dotted_name, show_sql
from midstream.query.stream import Stream, resolve
from midstream.query.types import canonical_type, show_type, type_family

_BOOLEAN = pa.bool_()
_CAST = "cast the column in its DataFrame before the join"

_COMPARISONS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], Operator] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
# operator, family of its argument, type of its result
_FUNCTIONS: dict[type[exp.Expr], tuple[Operator, str, pa.DataType]] = {
    exp.Lower: ("lower", "string", pa.string()),
    exp.Upper: ("upper", "string", pa.string()),
    exp.Length: ("length", "string", pa.int64()),
    exp.Sqrt: ("sqrt", "number", pa.float64()),
    exp.Not: ("not", "boolean", _BOOLEAN),
}


@dataclass(frozen=True, slots=True)
class Translator:
    """Turns parsed trees into expressions over the columns of ``streams``."""

    streams: Sequence[Stream]
    zone: str
    text: str
    """The predicate as the user wrote it, for error messages."""

    def __call__(self, tree: exp.Expr) -> Expression:
        """Translate a tree, or refuse it by name."""
        tree = tree.unnest()
        kind = type(tree)
        name = dotted_name(tree)
        if name is not None:
            return self.column(name)
        if kind in _COMPARISONS:
            return self.compare(_COMPARISONS[kind], self(tree.this), self(tree.expression))
        if kind in _ARITHMETIC:
            return self.arithmetic(_ARITHMETIC[kind], self(tree.this), self(tree.expression))
        if kind in _FUNCTIONS:
            operator, argument_family, result = _FUNCTIONS[kind]
            arg = self.expect(self(tree.this), argument_family, operator)
            return Call(operator, (arg,), result)
        if kind not in _HANDLERS:
            raise self.refusal(tree)
        return _HANDLERS[kind](self, tree)

    def column(self, name: tuple[str, ...]) -> Expression:
        """A column, in the type in which the engine compares it."""
        ref = resolve(self.streams, name)
        stream = next(stream for stream in self.streams if stream.name == ref.stream)
        kind = canonical_type(stream.type_of(ref))
        if kind is None:
            raise QueryError(
                f"a predicate must use columns of simple types: {self.text}",
                got=f"{ref} of type {show_type(stream.type_of(ref))}",
                hint="use a field of it, or add a simple column to the DataFrame",
            )
        return Column(ref, kind)

    def compare(self, operator: Operator, left: Expression, right: Expression) -> Expression:
        """A comparison of two values, if their types compare."""
        self.common_type(left, right)
        return Call(operator, (left, right), _BOOLEAN)

    def common_type(self, *values: Expression) -> pa.DataType:
        """The type in which values compare."""
        kind = values[0].type
        for before, value in pairwise(values):
            common = comparison_type(kind, value.type)
            if common is None:
                raise QueryError(
                    f"both sides must have types that compare: {self.text}",
                    got=f"{self.show(before)} and {self.show(value)}",
                    hint=hints.for_comparison(before.type, value.type),
                )
            kind = common
        return kind

    def arithmetic(self, operator: Operator, left: Expression, right: Expression) -> Expression:
        """A calculation, if its result is exact, or a double as in Spark."""
        kind = arithmetic_type(operator, left.type, right.type)
        if kind is None:
            raise QueryError(
                f"'{operator}' must have types that it can calculate exactly: {self.text}",
                got=f"{self.show(left)} and {self.show(right)}",
                hint=hints.for_arithmetic(left.type, right.type),
            )
        return Call(operator, (left, right), kind)

    def expect(self, value: Expression, expected: str, where: str) -> Expression:
        """The value, if its type is of the expected family."""
        if type_family(value.type) not in (expected, "null"):
            raise QueryError(f"{where} must have a {expected}: {self.text}", got=self.show(value), hint=_CAST)
        return value

    def show(self, value: Expression) -> str:
        """A value as an error shows it: its type, and if it is a column, which."""
        shown = show_type(self.own_type(value))
        return f"{value.ref} of type {shown}" if isinstance(value, Column) else shown

    def own_type(self, value: Expression) -> pa.DataType:
        """The type of a value; of a column, the one that it has in its DataFrame."""
        if not isinstance(value, Column):
            return value.type
        stream = next(stream for stream in self.streams if stream.name == value.ref.stream)
        return stream.type_of(value.ref)

    def refusal(self, tree: exp.Expr) -> QueryError:
        """The error for a construct that is not on the allow-list."""
        return QueryError(
            f"a predicate must use only the listed operators and functions: {self.text}",
            got=show_sql(tree),
            hint=hints.for_refusal(tree, [stream.name for stream in self.streams]),
        )


Handler = Callable[[Translator, exp.Expr], Expression]


def _logic(operator: Operator) -> Handler:
    def translate(to: Translator, tree: exp.Expr) -> Expression:
        sides = (to(tree.this), to(tree.expression))
        return Call(operator, tuple(to.expect(s, "boolean", operator) for s in sides), _BOOLEAN)

    return translate


def _constant(read: Callable[[Translator, exp.Expr], Constant | None]) -> Handler:
    def translate(to: Translator, tree: exp.Expr) -> Expression:
        constant = read(to, tree)
        if constant is None:
            raise to.refusal(tree)
        return constant

    return translate


_typed_literal = _constant(lambda to, tree: literals.typed_literal(tree, to.zone, to.text))


def _of_number_or_interval(operator: Operator, shown: str) -> Handler:
    def translate(to: Translator, tree: exp.Expr) -> Expression:
        arg = to(tree.this)
        if arg.type != INTERVAL:
            to.expect(arg, "number", shown)
        return Call(operator, (arg,), arg.type)

    return translate


def _between(to: Translator, tree: exp.Expr) -> Expression:
    value, low, high = to(tree.this), to(tree.args["low"]), to(tree.args["high"])
    return Call("and", (to.compare(">=", value, low), to.compare("<=", value, high)), _BOOLEAN)


def _is(to: Translator, tree: exp.Expr) -> Expression:
    if isinstance(tree.expression, exp.Null):
        return Call("is null", (to(tree.this),), _BOOLEAN)
    if not isinstance(tree.expression, exp.Boolean):
        raise to.refusal(tree)
    return to.compare("<=>", to(tree.this), to(tree.expression))


def _in(to: Translator, tree: exp.Expr) -> Expression:
    if not tree.expressions:
        raise to.refusal(tree)
    value = to(tree.this)
    comparisons = [to.compare("=", value, to(choice)) for choice in tree.expressions]
    result = comparisons[0]
    for comparison in comparisons[1:]:
        result = Call("or", (result, comparison), _BOOLEAN)
    return result


def _like(to: Translator, tree: exp.Expr) -> Expression:
    value = to.expect(to(tree.this), "string", "LIKE")
    pattern = to(tree.expression)
    if not (isinstance(pattern, Constant) and isinstance(pattern.value, str)):
        raise QueryError(
            f"the pattern of LIKE must be a text in quotes: {to.text}",
            got=show_sql(tree.expression),
            hint=hints.for_refusal(tree, [stream.name for stream in to.streams]),
        )
    return Call("like", (value, pattern), _BOOLEAN)


def _coalesce(to: Translator, tree: exp.Expr) -> Expression:
    args = [to(tree.this), *(to(arg) for arg in tree.expressions)]
    return Call("coalesce", tuple(args), to.common_type(*args))


def _case(to: Translator, tree: exp.Expr) -> Expression:
    """CASE and IF as (condition, value, condition, value, ..., default)."""
    branches = tree.args["ifs"] if isinstance(tree, exp.Case) else [tree]
    args: list[Expression] = []
    for branch in branches:
        condition = to(branch.this)
        if isinstance(tree, exp.Case) and tree.this is not None:
            condition = to.compare("=", to(tree.this), condition)
        args += [to.expect(condition, "boolean", "WHEN"), to(branch.args["true"])]
    last = tree.args.get("default") or tree.args.get("false")
    default = to(last) if last is not None else Constant(None, pa.null())
    return Call("case", (*args, default), to.common_type(*args[1::2], default))


_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.And: _logic("and"),
    exp.Or: _logic("or"),
    exp.Literal: _constant(lambda _, tree: literals.number_or_text(tree)),
    exp.Boolean: lambda _, tree: Constant(bool(tree.this), _BOOLEAN),
    exp.Null: lambda _to, _tree: Constant(None, pa.null()),
    exp.Cast: _typed_literal,
    exp.TryCast: _typed_literal,
    exp.Interval: lambda to, tree: interval_literal(tree, to.text),
    exp.Neg: _of_number_or_interval("negate", "-"),
    exp.Abs: _of_number_or_interval("abs", "abs"),
    exp.Between: _between,
    exp.Is: _is,
    exp.In: _in,
    exp.Like: _like,
    exp.Coalesce: _coalesce,
    exp.Case: _case,
    exp.If: _case,
}
