"""What every error that a user sees must be like: its grammar, and words that must not be in it."""

import re
from collections.abc import Callable

import pytest

from midstream.errors import MidstreamError

_NOT_FOR_USERS = {
    "a library": r"sqlglot|pyarrow|polars|msgspec|py4j|(?<!spark\.)pyspark|botocore|fsspec",
    "a class of an error": r"\b\w+(Error|Exception)\b",
    "an object of Python's": r"<class|object at 0x|NoneType|datetime\.|PosixPath|<function|<lambda|dict_keys",
    "an object of our own": r"\b[A-Z]\w+\(\w+=",
    "a node of a parser": r"\(anonymous\)|\((trycast|dpipe|bracket|select|regexplike|placeholder)\)",
    "a type of Arrow's": r"\b(u?int(8|16|32|64)|utf8|large_\w+|float(16|32|64)|date32|decimal128|list<)"
    r"|(timestamp|duration)\[",
}


def told_of(mistake: Callable[[], object]) -> str:
    """What whoever makes a mistake is told, which is plain."""
    with pytest.raises(MidstreamError) as raised:
        mistake()
    assert_plain(raised.value)
    return str(raised.value)


def assert_plain(error: MidstreamError) -> None:
    """The parts make up the message, each is a phrase on one line, and a user knows every word in it."""
    text = str(error)
    assert isinstance(error, MidstreamError)
    assert re.search(r"\bmust\b", error.must), text
    assert not {"; got ", "Hint:", "\n"} & {
        part for part in ("; got ", "Hint:", "\n") if part in error.must
    }, text
    assert text.startswith(error.must)
    assert error.got is None or (isinstance(error.got, str) and error.got.strip() != ""), text
    assert "Hint:" not in (error.got or ""), text
    assert error.hint is None or not error.hint.endswith("."), text
    assert "\n" not in text, text
    for what, pattern in _NOT_FOR_USERS.items():
        found = re.search(pattern, text)
        assert found is None, f"{what}, {found[0]!r}: {text}"
