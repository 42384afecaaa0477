"""The one tree of errors.

Every message has the same grammar: *what must hold; what was got. Hint: what to do.*  The parts are also
fields, so that programs need not parse text. Every error can be pickled, because it may have to travel from a
Spark executor to the driver.

All errors derive from :class:`MidstreamError`. An :class:`InternalError` means that Midstream broke one of
its own promises, and asks for a report.
"""

from __future__ import annotations


class MidstreamError(Exception):
    """Base of every error that Midstream raises on purpose."""

    def __init__(self, must: str, *, got: object = None, hint: str | None = None) -> None:
        self.must = must
        self.got = got
        self.hint = hint
        text = must if got is None else f"{must}; got {got}"
        super().__init__(text if hint is None else f"{text}. Hint: {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.must, self.got, self.hint)


class QueryError(MidstreamError, ValueError):
    """The query is not valid: its streams, columns, predicates, windows or outputs."""


class NoSuchMethodError(QueryError, AttributeError):
    """A join was asked for something that DataFrames have and joins do not."""


class PlanError(MidstreamError, ValueError):
    """A text or tree is not a plan of the query's streams."""


class OptionError(MidstreamError, ValueError):
    """An option of the writer is unknown, malformed or not available."""


class CheckpointError(MidstreamError):
    """The checkpoint does not fit the query, or cannot be read."""


class FormatError(CheckpointError):
    """The checkpoint has a format that this version does not read."""


class NoCheckpointError(CheckpointError):
    """There is no checkpoint where one must be."""


class LockedError(CheckpointError):
    """Another driver works on the checkpoint."""


class FencedError(CheckpointError):
    """This driver was fenced: another driver has taken its lease."""


class StreamError(MidstreamError):
    """The running query met data that it must not ignore silently."""


class AggregateError(MidstreamError):
    """The user's code of an aggregate failed, or gave something else than it must."""


class MigrationError(MidstreamError):
    """A migration cannot be carried out; after a restart the query continues with the plan it had."""


class WorkerError(MidstreamError):
    """Spark's workers cannot run the tasks of a join."""


class InternalError(MidstreamError):
    """Midstream broke one of its own promises; please report it with the message."""


def show_value(value: object) -> str:
    """A value that a user gave, as an error shows it: its text, or of a complex object only the type."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def error_fields(error: MidstreamError) -> dict[str, str | None]:
    """An error as plain text, which can be sent without pickling."""
    got = None if error.got is None else str(error.got)
    return {"kind": type(error).__name__, "must": error.must, "got": got, "hint": error.hint}


def error_from(fields: dict[str, str | None]) -> MidstreamError:
    """The error that :func:`error_fields` described; an :class:`InternalError` if its kind is unknown."""
    kinds: list[type[MidstreamError]] = [*MidstreamError.__subclasses__(), *CheckpointError.__subclasses__()]
    kind = next((kind for kind in kinds if kind.__name__ == fields["kind"]), InternalError)
    return kind(str(fields["must"]), got=fields["got"], hint=fields["hint"])


def _rebuild(kind: type[MidstreamError], must: str, got: object, hint: str | None) -> MidstreamError:
    return kind(must, got=got, hint=hint)
