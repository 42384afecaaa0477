"""The manifest: the committed truth after an epoch, and everything needed to go on from there.

It is plain JSON of a closed form: unknown fields, a wrong digest or another version are refused, never
guessed at. Each manifest carries a digest of itself and that of the one before it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from midstream.errors import FormatError
from midstream.plan.state_id import StateId, decode_state_id, encode_state_id
from midstream.state.adaptation import Adaptation
from midstream.state.migration import Migration
from midstream.state.sealed import RESTORE, UNREADABLE, digest, seal, unreadable, unseal
from midstream.state.slices import Slice
from midstream.state.statistics import Statistics
from midstream.state.upgrade import OLDEST_FORMAT, upgrade_manifest

FORMAT = 5


class StreamProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a stream has come, and what became of its rows since the query began."""

    latest: int | None = None
    """Largest event time of an accepted row."""
    watermark: int | None = None
    """No row before this time is accepted any more."""
    last_active: int | None = None
    """The largest event time of all streams when this one last brought a row."""
    idle: bool = False
    rows: int = 0
    late: int = 0
    null_time: int = 0
    null_key: int = 0
    future: int = 0


class Retired(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slice that is not in use since this epoch; its file is deleted some epochs later."""

    name: str
    epoch: int


class OutputFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file for readers: what it is called while it is staged, and once it is published."""

    table: Literal["results", "late"]
    staged: str
    published: str
    rows: int
    folder: str = ""
    """The id of the folder that it was staged in."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that holds after ``epoch``."""

    id: str
    """The id of the query; its output files carry it."""
    epoch: int
    """The last epoch that is in it; -1 before the first."""
    spark_query: str
    """Spark's id of the query whose batches the epochs are; empty before the first."""
    definition: dict[str, Any]
    """The query and its persisted options: a restart must ask for the same."""
    plan: str
    """The plan that produces all results, or the old one while a migration is under way."""
    initial_plan: str
    """The plan that the query began with."""
    streams: dict[str, StreamProgress]
    state_ids: dict[StateId, StateId] = {}
    """The ids of the plan's states, where they are not just their streams."""
    migration: Migration | None = None
    """The migration that is under way."""
    ended_migration: Migration | None = None
    """The migration that ended with this epoch."""
    migrations: int = 0
    """How many have begun."""
    applied_requests: int = 0
    """The number of the last request for another plan that was applied."""
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
    lease: int = 0
    """The number of the lease under which it was committed."""
    format: int = FORMAT


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest, sealed with their digest."""
    return seal("manifest", manifest_json(manifest))


def digest_of(manifest: Manifest) -> str:
    """The digest with which a manifest of the current format is sealed."""
    return digest(manifest_json(manifest))


def decode_manifest(data: bytes, name: str) -> tuple[Manifest, str]:
    """A manifest from its bytes, and its digest; anything wrong is an error that names the file.

    A manifest of an earlier format is upgraded. Its digest stays that of its bytes: the manifest after it
    refers to these.
    """
    what = f"manifest {name}"
    body = unseal("manifest", data, what)
    try:
        version = msgspec.json.decode(body, type=_Version).format
        if not OLDEST_FORMAT <= version <= FORMAT:
            newer = "upgrade Midstream to open it" if version > FORMAT else RESTORE
            must = f"{what} must have a format from {OLDEST_FORMAT} to {FORMAT}"
            raise FormatError(must, got=version, hint=newer)
        current = body
        if version < FORMAT:
            fields = upgrade_manifest(msgspec.json.decode(body, type=dict[str, Any]), FORMAT)
            current = msgspec.json.encode(fields)
        return msgspec.json.decode(current, type=Manifest, dec_hook=decode_state_id), digest(body)
    except (*UNREADABLE, AttributeError, KeyError, TypeError) as error:  # a forged one may have any shape
        raise unreadable(what, error) from None


def manifest_json(manifest: Manifest) -> bytes:
    """The JSON of a manifest, without its digest."""
    return msgspec.json.encode(manifest, enc_hook=encode_state_id)


class _Version(msgspec.Struct):
    format: int
