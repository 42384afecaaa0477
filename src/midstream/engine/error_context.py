"""Guards: what the libraries below raise becomes an error that says where, and never what.

Messages of Arrow and Polars may quote values of rows, and errors end in logs. A panic of Polars is not even
an ``Exception``: whoever waits for one never sees it. So every task works inside of a guard, which knows the
batch, and deeper down others know the streams and the columns that are being worked on. The error that comes
out names all of that, and the line of our code.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import polars as pl
import pyarrow as pa

from midstream.errors import InternalError

_LIBRARIES = (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OverflowError)
_HINT = "leave such rows out in the DataFrame of the stream to go on, and please report this message"
_OURS = __file__.removesuffix("guard.py").removesuffix("engine/")


@dataclass(frozen=True)
class ErrorContext:
    """What is known of the work that failed."""

    what: str = ""
    batch: str = ""
    streams: str = ""
    condition: str = ""
    columns: str = ""
    failed: str = ""

    def within(self, outer: ErrorContext) -> ErrorContext:
        """What is known here, and for the rest what is known further out."""
        return ErrorContext(
            *(mine or other for mine, other in zip(astuple(self), astuple(outer), strict=True))
        )


class ComputingError(InternalError):
    """A library failed; where, is known in part by each guard that the error passes."""

    context = ErrorContext()

    @classmethod
    def at(cls, context: ErrorContext) -> ComputingError:
        """The error that says all that is known of a place."""
        about = ", ".join(filter(None, (context.batch, context.streams, context.condition, context.columns)))
        got = f"{context.failed} ({about})" if about else context.failed
        error = cls(f"{context.what or 'a task'} must work with any rows", got=got, hint=_HINT)
        error.context = context
        return error


@contextmanager
def error_context(
    what: str = "",
    *,
    batch: int | str | None = None,
    streams: Iterable[object] = (),
    condition: str = "",
    columns: Iterable[object] = (),
) -> Iterator[None]:
    """Work on columns inside of this; a task also says ``what`` it does, and in which batch."""
    try:
        yield
    except MemoryError:
        raise  # one of Arrow's own is an ArrowException too, but no row is to blame for it
    except (ComputingError, *_LIBRARIES) as error:
        outer = ErrorContext(
            what,
            "" if batch is None else f"batch {batch}",
            _listed("stream", streams),
            condition and f"condition {condition}",
            _listed("column", columns),
        )
        inner = error.context if isinstance(error, ComputingError) else ErrorContext(failed=_where(error))
        raise ComputingError.at(inner.within(outer)) from None


def _listed(name: str, things: Iterable[object]) -> str:
    names = list(dict.fromkeys(map(str, things)))
    return f"{name}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _where(error: BaseException) -> str:
    """The kind of an error, and the last line of our own that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if frame.filename.startswith(_OURS)][-1]
    return f"{type(error).__name__} in {last.filename.rpartition('/')[2]}, line {last.lineno}"
