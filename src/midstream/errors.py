"""The one tree of errors.

Every message has the same grammar: *what must hold; what was got. Hint: what to do.*  The parts stay
available as fields, so that a program can use them without reading text, and every error survives
pickling because it may have to cross from a Spark executor to the driver.

Policy: everything a user can cause derives from :class:`MidstreamError`; :class:`InternalError` means
that Midstream itself broke one of its promises and asks for a report.
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
    """What is asked cannot be asked: streams, columns, predicates, windows or outputs."""


class PlanError(MidstreamError, ValueError):
    """A text or tree is not a plan of the query's streams."""


class OptionError(MidstreamError, ValueError):
    """An option of the writer is unknown, malformed or not available."""


class CheckpointError(MidstreamError):
    """The checkpoint does not fit the query, or cannot be read."""


class FormatError(CheckpointError):
    """The checkpoint has a format that this version does not read."""


class LockedError(CheckpointError):
    """Another driver works on the checkpoint."""


class FencedError(CheckpointError):
    """This driver was given up for dead, and another has gone on."""


class StreamError(MidstreamError):
    """The running query met something that it must not pass over in silence."""


class MigrationError(MidstreamError):
    """A change of plan cannot be carried out; started again, the query goes on with the plan it had."""


class InternalError(MidstreamError):
    """A promise of Midstream's own was broken; please report it with the message."""


def error_fields(error: MidstreamError) -> dict[str, str | None]:
    """An error as plain text, to travel without pickling."""
    got = None if error.got is None else str(error.got)
    return {"kind": type(error).__name__, "must": error.must, "got": got, "hint": error.hint}


def error_from(fields: dict[str, str | None]) -> MidstreamError:
    """The error that :func:`error_fields` described; one of an unknown kind is an internal one."""
    known: list[type[MidstreamError]] = [*MidstreamError.__subclasses__(), *CheckpointError.__subclasses__()]
    kind = next((kind for kind in known if kind.__name__ == fields["kind"]), InternalError)
    return kind(str(fields["must"]), got=fields["got"], hint=fields["hint"])


def _rebuild(kind: type[MidstreamError], must: str, got: object, hint: str | None) -> MidstreamError:
    return kind(must, got=got, hint=hint)
