"""Readers: how the text of an option becomes a typed value, or an error that says what it must be."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from midstream.errors import OptionError, QueryError
from midstream.storage.remote import PROTOCOLS, is_remote
from midstream.values import Micros, duration

T = TypeVar("T")
TextT = TypeVar("TextT", bound=str)
Reader = Callable[[str, str], T]
"""Takes the name of an option, which errors mention, and its text."""

_SIZE = re.compile(r"(\d{1,15})\s*([kmgt]?)b?")
_LEAST_SIZE = 1 << 10
"""With less than that, a unit was forgotten."""
_SIZE_BITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

CODECS = {
    **{name: name for name in ("none", "snappy", "gzip", "lz4", "brotli", "zstd")},
    "uncompressed": "none",
    "lz4_raw": "lz4",
}
"""Codecs of Parquet files by Spark's names, as Arrow calls them; LZ4 in the form that all readers know."""

_LEAVE_OUT = "leave the option out"


def plan_text(name: str, text: str) -> str:
    """The text of a plan, which is read once the streams are known."""
    if not text.strip():
        raise OptionError(f"{name} must be a plan, such as '(a b) c'", got=repr(text), hint=_LEAVE_OUT)
    return text


def whole_number(low: int, high: int) -> Reader[int]:
    """A whole number between two bounds, both included."""

    def read(name: str, text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise OptionError(f"{name} must be a whole number from {low} to {high}", got=repr(text))
        return int(text)

    return read


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise OptionError(f"{name} must be whole numbers, such as '2,1,1'", got=repr(text))
    return tuple(map(int, parts))


def number_from(least: float) -> Reader[float]:
    """A number that is not less than a bound."""

    def read(name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:  # so NaN is refused, too
            raise OptionError(f"{name} must be a number from {least:g} on", got=repr(text))
        return value

    return read


def share(name: str, text: str) -> float:
    """A share: a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:  # so NaN is refused, too
        raise OptionError(f"{name} must be a number from 0 to 1, such as 0.05", got=repr(text))
    return value


def a_duration(name: str, text: Any) -> Micros:
    """A duration such as ``30 minutes``."""
    try:
        return duration(text, name)
    except QueryError as error:
        raise OptionError(error.must, got=error.got, hint=error.hint) from None


def a_size(name: str, text: str) -> int:
    """A number of bytes such as ``512m``: units are powers of 1024, as in Spark's own settings."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or not int(match[1]):
        hint = "write a number and a unit: k, m, g or t"
        raise OptionError(f"{name} must be a size such as '512m'", got=repr(text), hint=hint)
    size = int(match[1]) << _SIZE_BITS[match[2]]
    if size < _LEAST_SIZE:
        hint = f"write a unit, such as '{text.strip()}m' if megabytes are meant"
        raise OptionError(f"{name} must be a size of a kilobyte at least", got=f"{size} bytes", hint=hint)
    return size


def or_off(read: Reader[T]) -> Reader[T | None]:
    """What another reader takes, or ``off``, which is None."""

    def read_or_off(name: str, text: str) -> T | None:
        if text.lower() == "off":
            return None
        try:
            return read(name, text)
        except OptionError as error:
            hint = f"{error.hint}; or 'off'" if error.hint else "or write 'off'"
            raise OptionError(error.must, got=error.got, hint=hint) from None

    return read_or_off


def one_of(values: Sequence[TextT]) -> Reader[TextT]:
    """One of some words, in any case."""
    return choice({value: value for value in values})


def choice(values: Mapping[TextT, T]) -> Reader[T]:
    """One of some words, in any case, each of which stands for a value."""
    by_text = {str(word): value for word, value in values.items()}

    def read(name: str, text: str) -> T:
        if text.lower() not in by_text:
            raise OptionError(f"{name} must be one of {', '.join(by_text)}", got=repr(text))
        return by_text[text.lower()]

    return read


def folder(name: str, text: str) -> str:
    """An absolute path of a folder that all machines see as a file system."""
    if not text.strip():
        raise OptionError(f"{name} must be a folder", got=repr(text), hint=_LEAVE_OUT)
    url = urlsplit(text)
    local = url.scheme == "" or (url.scheme == "file" and url.netloc in ("", "localhost"))
    if not local:
        raise OptionError(
            f"{name} must be a folder of a local or mounted file system",
            got=_without_credentials(text),
            hint="mount it on all machines and give the folder, or write there with Spark: "
            ".foreachBatch(lambda batch, id: batch.write.mode('overwrite').parquet(f'{address}/{id}'))",
        )
    if text.startswith("~"):
        hint = "write the whole path, or os.path.expanduser(...)"
        raise OptionError(f"{name} must not begin with '~', which is no home here", got=repr(text), hint=hint)
    # '..' is resolved before links are followed, as in Spark; links stay, since they may differ by machine.
    path = os.path.abspath(unquote(url.path) if url.scheme else text)  # noqa: PTH100
    if set(path) & set("*?[]{}\\\0"):
        must = f"{name} must not have a zero byte, nor characters that Spark takes for patterns"
        raise OptionError(must, got=repr(path))
    return path


def folder_or_object_store(name: str, text: str) -> str:
    """A folder, or an address in an object store that a checkpoint may be in."""
    if is_remote(text) and "@" not in text:
        return text.rstrip("/")
    if urlsplit(text).scheme in ("", "file"):
        return folder(name, text)
    raise OptionError(
        f"{name} must be a folder, or an address of a store whose conditional puts are known to be safe",
        got=_without_credentials(text),
        hint=f"such addresses begin with {' or '.join(f'{scheme}://' for scheme in PROTOCOLS)}, "
        "and have no credentials in them; a file system that is mounted on all machines is a folder",
    )


def _without_credentials(address: str) -> str:
    """An address as it may be shown: without what is before '@', which may be a password."""
    head, at, tail = address.rpartition("@")
    return repr(f"{head.partition('://')[0]}://...@{tail}" if at else address)
