"""What is at a checkpointLocation before it is used: a checkpoint, nothing, or something else.

Nothing is written here. A folder of Spark's own, or of another program, is refused before the first file is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from midstream.errors import CheckpointError, MidstreamError, NoCheckpointError
from midstream.storage.lease import FOLDER as LEASES
from midstream.storage.lease import has_leases
from midstream.storage.manifest_log import FOLDER as MANIFESTS
from midstream.storage.manifest_log import manifest_files
from midstream.storage.remote import is_remote, names_at
from midstream.storage.store import TEMPORARY, Store

_SPARK_NAMES = ("offsets", "commits", "metadata", "sources", "state")
"""What Spark has in the checkpoint of a streaming query; ``metadata`` is always there."""
_OUR_NAMES = (LEASES, MANIFESTS, "slices")
"""What is in every checkpoint of ours that has an epoch."""
_NAMES_SHOWN = 3


@contextmanager
def explain_unusable(what: str, location: str, kind: type[MidstreamError]) -> Iterator[None]:
    """If a folder cannot be read or written, raise an error that names it and says why."""
    try:
        yield
    except OSError as error:
        if is_remote(location):
            got, hint = (
                f"{location}: {error.__cause__ or error}",
                "see whether it can be reached, and what it allows",
            )
        else:
            path = Path(location)
            file = next((part for part in (path, *path.parents) if part.is_file()), None)
            got = f"{location}, where {file} is a file" if file else f"{location}: {error.strerror or error}"
            hint = (
                "give another folder, or let the user that runs this read and write it, and make hard links"
            )
        raise kind(f"{what} must be a folder that can be read and written", got=got, hint=hint) from error


def check_not_foreign(location: str, store: Store) -> None:
    """Refuse a location with something else in it than a checkpoint of a join."""
    outer = _checkpoint_around(location)
    if outer is not None and not has_checkpoint(store):
        raise CheckpointError(
            "checkpointLocation must not be inside of another checkpoint, which would remove its files",
            got=f"{location}, inside of {outer}",
            hint="give the join a folder beside that one",
        )
    names = [name for name in names_at(location) if not name.startswith(".") and name != "lost+found"]
    if not set(names) - {TEMPORARY} or has_checkpoint(store):
        return
    if "metadata" in names and set(names) <= set(_SPARK_NAMES):
        got = f"{location}, the checkpoint of a query of Spark's own ({', '.join(names)})"
    else:
        more = ", ..." if len(names) > _NAMES_SHOWN else ""
        got = f"{location}, a folder with other things in it ({', '.join(names[:_NAMES_SHOWN])}{more})"
    raise CheckpointError(
        "checkpointLocation must be a new or empty folder, or one that a join has used",
        got=got,
        hint="give the join a folder of its own; it cannot go on from the checkpoint of another query",
    )


def _checkpoint_around(location: str) -> str | None:
    """The checkpoint that a folder is inside of, if there is one; addresses are not looked at."""
    if is_remote(location):
        return None
    parents = Path(os.path.realpath(location)).parents
    is_checkpoint = (all((p / name).is_dir() for name in _OUR_NAMES) for p in parents)
    return next((str(p) for p, found in zip(parents, is_checkpoint, strict=True) if found), None)


def check_has_checkpoint(location: str, store: Store) -> None:
    """Refuse a location without a checkpoint."""
    if has_checkpoint(store):
        return
    names = names_at(location)
    there = f"a folder with {', '.join(names[:_NAMES_SHOWN])}" if names else "nothing"
    raise NoCheckpointError(
        "a checkpoint must be a folder that a join has used",
        got=f"{location}, where there is {there}",
        hint="give the checkpointLocation of a query",
    )


def has_checkpoint(store: Store) -> bool:
    """Whether a join has used the store; it may not have committed anything yet."""
    return bool(manifest_files(store)) or has_leases(store)
