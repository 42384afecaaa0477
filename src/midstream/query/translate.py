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
from midstream.query import error_hints, literals
from midstream.query.expression import Call, Column, Constant, Expression, ExpressionOperator
from midstream.query.intervals import interval_literal
from midstream.query.operator_types import INTERVAL, arithmetic_type, comparison_type
from midstream.query.sql import dotted_name, show_sql
from midstream.query.stream import Stream, resolve
from midstream.query.types import canonical_type, show_type, type_family

_BOOLEAN = pa.bool_()
_CAST = "cast the column in its DataFrame before the join"

_COMPARISONS: dict[type[exp.Expr], ExpressionOperator] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], ExpressionOperator] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
# operator, family of its argument, type of its result
_FUNCTIONS: dict[type[exp.Expr], tuple[ExpressionOperator, str, pa.DataType]] = {
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
        node_type = type(tree)
        name = dotted_name(tree)
        if name is not None:
            return self.column(name)
        if node_type in _COMPARISONS:
            return self.compare(_COMPARISONS[node_type], self(tree.this), self(tree.expression))
        if node_type in _ARITHMETIC:
            return self.arithmetic(_ARITHMETIC[node_type], self(tree.this), self(tree.expression))
        if node_type in _FUNCTIONS:
            operator, argument_family, result = _FUNCTIONS[node_type]
            arg = self.expect(self(tree.this), argument_family, operator)
            return Call(operator, (arg,), result)
        if node_type not in _HANDLERS:
            raise self.refusal(tree)
        return _HANDLERS[node_type](self, tree)

    def column(self, name: tuple[str, ...]) -> Expression:
        """A column, in the type in which the engine compares it."""
        ref = resolve(self.streams, name)
        stream = next(stream for stream in self.streams if stream.name == ref.stream)
        dtype = canonical_type(stream.type_of(ref))
        if dtype is None:
            raise QueryError(
                f"a predicate must use columns of simple types: {self.text}",
                got=f"{ref} of type {show_type(stream.type_of(ref))}",
                hint="use a field of it, or add a simple column to the DataFrame",
            )
        return Column(ref, dtype)

    def compare(self, operator: ExpressionOperator, left: Expression, right: Expression) -> Expression:
        """A comparison of two values, if their types compare."""
        self.common_type(left, right)
        return Call(operator, (left, right), _BOOLEAN)

    def common_type(self, *values: Expression) -> pa.DataType:
        """The type in which values compare."""
        dtype = values[0].type
        for before, value in pairwise(values):
            common = comparison_type(dtype, value.type)
            if common is None:
                raise QueryError(
                    f"both sides must have types that compare: {self.text}",
                    got=f"{self.show(before)} and {self.show(value)}",
                    hint=error_hints.for_comparison(before.type, value.type),
                )
            dtype = common
        return dtype

    def arithmetic(self, operator: ExpressionOperator, left: Expression, right: Expression) -> Expression:
        """A calculation, if its result is exact, or a double as in Spark."""
        dtype = arithmetic_type(operator, left.type, right.type)
        if dtype is None:
            raise QueryError(
                f"'{operator}' must have types that it can calculate exactly: {self.text}",
                got=f"{self.show(left)} and {self.show(right)}",
                hint=error_hints.for_arithmetic(left.type, right.type),
            )
        return Call(operator, (left, right), dtype)

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
            hint=error_hints.for_refusal(tree, [stream.name for stream in self.streams]),
        )


Handler = Callable[[Translator, exp.Expr], Expression]


def _logic(operator: ExpressionOperator) -> Handler:
    def translate(translate: Translator, tree: exp.Expr) -> Expression:
        sides = (translate(tree.this), translate(tree.expression))
        return Call(operator, tuple(translate.expect(s, "boolean", operator) for s in sides), _BOOLEAN)

    return translate


def _constant(read: Callable[[Translator, exp.Expr], Constant | None]) -> Handler:
    def translate(translate: Translator, tree: exp.Expr) -> Expression:
        constant = read(translate, tree)
        if constant is None:
            raise translate.refusal(tree)
        return constant

    return translate


_typed_literal = _constant(
    lambda translate, tree: literals.typed_literal(tree, translate.zone, translate.text)
)


def _of_number_or_interval(operator: ExpressionOperator, shown: str) -> Handler:
    def translate(translate: Translator, tree: exp.Expr) -> Expression:
        arg = translate(tree.this)
        if arg.type != INTERVAL:
            translate.expect(arg, "number", shown)
        return Call(operator, (arg,), arg.type)

    return translate


def _between(translate: Translator, tree: exp.Expr) -> Expression:
    value, low, high = translate(tree.this), translate(tree.args["low"]), translate(tree.args["high"])
    return Call("and", (translate.compare(">=", value, low), translate.compare("<=", value, high)), _BOOLEAN)


def _is(translate: Translator, tree: exp.Expr) -> Expression:
    if isinstance(tree.expression, exp.Null):
        return Call("is null", (translate(tree.this),), _BOOLEAN)
    if not isinstance(tree.expression, exp.Boolean):
        raise translate.refusal(tree)
    return translate.compare("<=>", translate(tree.this), translate(tree.expression))


def _in(translate: Translator, tree: exp.Expr) -> Expression:
    if not tree.expressions:
        raise translate.refusal(tree)
    value = translate(tree.this)
    comparisons = [translate.compare("=", value, translate(choice)) for choice in tree.expressions]
    result = comparisons[0]
    for comparison in comparisons[1:]:
        result = Call("or", (result, comparison), _BOOLEAN)
    return result


def _like(translate: Translator, tree: exp.Expr) -> Expression:
    value = translate.expect(translate(tree.this), "string", "LIKE")
    pattern = translate(tree.expression)
    if not (isinstance(pattern, Constant) and isinstance(pattern.value, str)):
        raise QueryError(
            f"the pattern of LIKE must be a text in quotes: {translate.text}",
            got=show_sql(tree.expression),
            hint=error_hints.for_refusal(tree, [stream.name for stream in translate.streams]),
        )
    return Call("like", (value, pattern), _BOOLEAN)


def _coalesce(translate: Translator, tree: exp.Expr) -> Expression:
    args = [translate(tree.this), *(translate(arg) for arg in tree.expressions)]
    return Call("coalesce", tuple(args), translate.common_type(*args))


def _case(translate: Translator, tree: exp.Expr) -> Expression:
    """CASE and IF as (condition, value, condition, value, ..., default)."""
    branches = tree.args["ifs"] if isinstance(tree, exp.Case) else [tree]
    args: list[Expression] = []
    for branch in branches:
        condition = translate(branch.this)
        if isinstance(tree, exp.Case) and tree.this is not None:
            condition = translate.compare("=", translate(tree.this), condition)
        args += [translate.expect(condition, "boolean", "WHEN"), translate(branch.args["true"])]
    last = tree.args.get("default") or tree.args.get("false")
    default = translate(last) if last is not None else Constant(None, pa.null())
    return Call("case", (*args, default), translate.common_type(*args[1::2], default))


_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.And: _logic("and"),
    exp.Or: _logic("or"),
    exp.Literal: _constant(lambda _, tree: literals.number_or_text(tree)),
    exp.Boolean: lambda _, tree: Constant(bool(tree.this), _BOOLEAN),
    exp.Null: lambda _to, _tree: Constant(None, pa.null()),
    exp.Cast: _typed_literal,
    exp.TryCast: _typed_literal,
    exp.Interval: lambda translate, tree: interval_literal(tree, translate.text),
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
