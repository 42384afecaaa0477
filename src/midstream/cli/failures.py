"""How commands fail: what they say, and with which code they exit.

| code | meaning                                     |
| ---- | ------------------------------------------- |
| 0    | success                                     |
| 1    | the query failed, or its results are wrong  |
| 2    | the command was not understood              |
| 3    | an option was refused                       |
| 4    | the checkpoint is not valid                 |
| 6    | another driver works on the checkpoint      |
| 7    | there is no checkpoint                      |
| 130  | interrupted                                 |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from midstream.errors import (
    CheckpointError,
    LockedError,
    MidstreamError,
    NoCheckpointError,
    OptionError,
    error_fields,
)

FAILED = 1
REFUSED = 3
BAD_CHECKPOINT = 4
LOCKED = 6
NO_CHECKPOINT = 7


class Commands(TyperGroup):
    """A group of commands whose errors, if Midstream raised them on purpose, are one line each.

    Usage errors and interrupts have their codes from Typer. Any other exception is a bug: it keeps its
    traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except MidstreamError as error:
            Console(stderr=True).print(Text(f"error: {error}", style="red"), soft_wrap=True)
            raise typer.Exit(exit_code(error)) from None


@contextmanager
def errors_as_json(wanted: bool) -> Iterator[None]:
    """For commands that write JSON: an error is JSON on the standard output, too."""
    try:
        yield
    except MidstreamError as error:
        if wanted:
            typer.echo(json.dumps({"version": 1, "error": error_fields(error)}, indent=2))
        raise


def exit_code(error: MidstreamError) -> int:
    """The code that a program exits with after an error."""
    match error:
        case OptionError():
            return REFUSED
        case LockedError():
            return LOCKED
        case NoCheckpointError():
            return NO_CHECKPOINT
        case CheckpointError():
            return BAD_CHECKPOINT
    return FAILED
