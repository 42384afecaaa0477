"""Taking the text of an aggregate apart: ``percentile(a.x, 0.9) AS late``.

A parser of SQL would give functions other names than the user did, and know some of them by other types.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from midstream.errors import QueryError, show_value

_DEEPER = (TokenType.L_PAREN, TokenType.L_BRACKET)
_HIGHER = (TokenType.R_PAREN, TokenType.R_BRACKET)


_IN_ROWS = "aggregate a column of the DataFrame that is null where a row is not to count"
_OF_AGGREGATES = "give each function a name of its own, and compute with them where the results are read"


class AggregateCall(NamedTuple):
    """A call of a function, and the name that its value gets."""

    function: str
    distinct: bool
    arguments: list[str]
    name: str


def split_call(item: str, hint: str) -> AggregateCall:
    """The parts of an aggregate's text; ``hint`` says what to write if it is none."""
    try:
        tokens = sqlglot.tokenize(item, read="spark") if isinstance(item, str) else []
    except SqlglotError:
        tokens = []
    close = _matching(tokens)
    if close is None:
        raise QueryError(
            "an aggregate must be a function of a column, with a name", got=show_value(item), hint=hint
        )
    rest = tokens[close + 1 :]
    if rest and rest[0].token_type == TokenType.ALIAS:
        rest = rest[1:]
    elif len(rest) > 1:
        raise QueryError(
            "an aggregate must be one function, and then its name",
            got=f"{item[rest[0].start :]!r} after {item[: tokens[close].end + 1]!r}",
            hint=_IN_ROWS if rest[0].text.upper() == "FILTER" else _OF_AGGREGATES,
        )
    if len(rest) != 1:
        hint = f"write '{item[: tokens[close].end + 1]} AS a_name'"
        raise QueryError("an aggregate must have one name", got=show_value(item), hint=hint)
    inner = tokens[2:close]
    distinct = bool(inner) and inner[0].token_type == TokenType.DISTINCT
    arguments = _arguments(item, inner[1:] if distinct else inner)
    return AggregateCall(tokens[0].text.lower(), distinct, arguments, rest[0].text)


def _matching(tokens: list[Token]) -> int | None:
    """The position of the bracket that closes the call with which a text begins."""
    if len(tokens) < 3 or tokens[1].token_type != TokenType.L_PAREN:
        return None
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.token_type in _DEEPER) - (token.token_type in _HIGHER)
        if depth == 0 and position > 0:
            return position
    return None


def _arguments(item: str, tokens: list[Token]) -> list[str]:
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in _DEEPER) - (token.token_type in _HIGHER)
        if token.token_type == TokenType.COMMA and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    # An argument is what is written, not what the tokenizer makes of it.
    return [item[part[0].start : part[-1].end + 1].strip() for part in arguments if part]
