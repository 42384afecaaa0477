"""Error contexts: an error of Arrow or Polars is replaced by one that says where it happened.

Their messages may quote values of rows, and errors end up in logs. A panic of Polars is not even an
``Exception``, so ``except Exception`` does not catch it. So every task runs inside of a context with its
batch; nested contexts add the streams, the condition and the columns that are being processed. The error
names all of them, and the line of our code, but quotes nothing.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import polars as pl
import pyarrow as pa

from midstream.errors import InternalError

_POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_LIBRARY_ERRORS = (pa.ArrowException, *_POLARS_ERRORS, OverflowError)
_HINT = "leave such rows out in the DataFrame of the stream to go on, and please report this message"
_PACKAGE = __file__.removesuffix("engine/error_context.py")


@dataclass(frozen=True)
class ErrorContext:
    """What is known of the work that failed; empty where nothing is."""

    task: str = ""
    batch: str = ""
    streams: str = ""
    condition: str = ""
    columns: str = ""
    cause: str = ""

    def within(self, outer: ErrorContext) -> ErrorContext:
        """This context, with what it lacks taken from the one around it."""
        pairs = zip(astuple(self), astuple(outer), strict=True)
        return ErrorContext(*(inner_value or outer_value for inner_value, outer_value in pairs))


class ComputingError(InternalError):
    """A library failed; each context that the error passes through adds what it knows."""

    context = ErrorContext()

    @classmethod
    def from_context(cls, context: ErrorContext) -> ComputingError:
        """The error that says all that a context knows."""
        details = ", ".join(
            filter(None, (context.batch, context.streams, context.condition, context.columns))
        )
        got = f"{context.cause} ({details})" if details else context.cause
        error = cls(f"{context.task or 'a task'} must work with any rows", got=got, hint=_HINT)
        error.context = context
        return error


@contextmanager
def error_context(
    task: str = "",
    *,
    batch: int | str | None = None,
    streams: Iterable[object] = (),
    condition: str = "",
    columns: Iterable[object] = (),
) -> Iterator[None]:
    """Adds to errors of libraries what is being processed; the outermost context names task and batch."""
    try:
        yield
    except MemoryError:
        raise  # Arrow's is an ArrowException too, but no row has caused it
    except (ComputingError, *_LIBRARY_ERRORS) as error:
        outer = ErrorContext(
            task,
            "" if batch is None else f"batch {batch}",
            _list_names("stream", streams),
            condition and f"condition {condition}",
            _list_names("column", columns),
        )
        inner = (
            error.context if isinstance(error, ComputingError) else ErrorContext(cause=_kind_and_line(error))
        )
        raise ComputingError.from_context(inner.within(outer)) from None


def _list_names(noun: str, items: Iterable[object]) -> str:
    names = list(dict.fromkeys(map(str, items)))
    return f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _kind_and_line(error: BaseException) -> str:
    """The kind of an error, and the innermost line of our own code in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if frame.filename.startswith(_PACKAGE)][-1]
    return f"{_kind(error)} in {last.filename.rpartition('/')[2]}, line {last.lineno}"


def _kind(error: BaseException) -> str:
    """What has failed, in words: ``ArrowNotImplementedError`` is a failure of Arrow (not implemented)."""
    words = re.findall("[A-Z][a-z]+", re.sub("^Arrow|Error$|Exception$", "", type(error).__name__))
    kind = f" ({' '.join(words).lower()})" if words else ""
    if isinstance(error, pa.ArrowException):
        return f"a failure of Arrow{kind}"
    return f"a failure of Polars{kind}" if isinstance(error, _POLARS_ERRORS) else f"a failure{kind}"
