"""The manifest: the committed truth after an epoch, and everything needed to go on from there.

It is plain JSON of a closed form: unknown fields, a wrong digest or another version are refused, never
guessed at. Each manifest carries a digest of itself and that of the one before it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from midstream.errors import CheckpointError
from midstream.state.adaptation import Adaptation
from midstream.state.migration import Migration
from midstream.state.slices import Slice
from midstream.state.statistics import Statistics

FORMAT = 3


class StreamMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a stream has come."""

    latest: int | None = None
    """Largest event time of an accepted row."""
    watermark: int | None = None
    """No row before this time is accepted any more."""
    seen: int | None = None
    """The largest event time of all streams when this one last brought a row."""
    idle: bool = False
    rows: int = 0
    late: int = 0
    null_time: int = 0
    null_key: int = 0
    """What became of its rows, since the query began."""


class Retired(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that this epoch stopped to use; it is deleted some epochs later."""

    name: str
    epoch: int


class OutputFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file for readers: what it is called while it is staged, and once it is published."""

    table: Literal["results", "late"]
    staged: str
    published: str
    rows: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that holds after ``epoch``."""

    id: str
    """The id of the query; its output files carry it."""
    epoch: int
    """The last epoch that is in it; -1 before the first."""
    source: str
    """Spark's id of the query whose batches the epochs are; empty before the first."""
    query: dict[str, Any]
    """What was asked and with which lasting options: a restart must ask the same."""
    plan: str
    """The plan that makes all results, or the old one while a migration is under way."""
    first_plan: str
    """The plan that the query began with."""
    streams: dict[str, StreamMark]
    states: dict[str, str] = {}
    """The ids of the plan's states, where they are not just their streams."""
    migration: Migration | None = None
    """The migration that is under way."""
    ended: Migration | None = None
    """The migration that was over with this epoch."""
    migrations: int = 0
    """How many have begun."""
    heeded: int = 0
    """The number of the last request that was heeded."""
    statistics: Statistics = Statistics()
    """What is known of the streams."""
    adaptation: Adaptation = Adaptation()
    """What was decided about the plan."""
    slices: tuple[Slice, ...] = ()
    retired: tuple[Retired, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    """The files of this epoch's results, so that publishing can be finished after a crash."""
    results: int = 0
    """Rows of results since the query began."""
    previous: str = ""
    """Digest of the manifest before."""
    format: int = FORMAT


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest, sealed with their digest."""
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(digest_of(manifest), msgspec.Raw(body)))


def digest_of(manifest: Manifest) -> str:
    """The digest by which the next manifest refers to this one."""
    return hashlib.sha256(msgspec.json.encode(manifest)).hexdigest()


def decode_manifest(data: bytes, name: str) -> Manifest:
    """A manifest from its bytes; anything wrong with them is an error that names the file."""
    hint = "restore the file, or start a new query with another checkpointLocation"
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        body = bytes(sealed.manifest)
        if hashlib.sha256(body).hexdigest() != sealed.sha256:
            raise CheckpointError(f"manifest {name} must have its digest", got="another", hint=hint)
        version = msgspec.json.decode(body, type=_Version).format
        if version != FORMAT:
            newer = "upgrade Midstream to open it" if version > FORMAT else hint
            raise CheckpointError(f"manifest {name} must have format {FORMAT}", got=version, hint=newer)
        return msgspec.json.decode(body, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"manifest {name} must be readable", got=error, hint=hint) from None


class _Version(msgspec.Struct):
    format: int
