"""Intents: what an epoch depends on besides its rows and the last manifest, written before it first runs.

An epoch may run more than once: its driver dies, its manifest is damaged, another driver takes over.
Meanwhile options may have changed, requests may have arrived, and the clock has moved on. Every attempt uses
the intent that was written first, so that it is the same epoch: same rows, same files, same number. What has
changed since takes effect with the epoch after it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.errors import CheckpointError
from midstream.migration.request import StoredMigrationRequest
from midstream.plan.state_id import decode_state_id, encode_state_id
from midstream.protocol.query_terms import QueryTerms
from midstream.protocol.settings import Settings
from midstream.state.adaptation import Verdict
from midstream.state.costs import Measurement
from midstream.state.json_with_digest import (
    RESTORE,
    UNREADABLE,
    decode_with_digest,
    encode_with_digest,
    unreadable,
)
from midstream.state.manifest import FORMAT as MANIFEST_FORMAT
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest
from midstream.state.upgrade import upgrade_manifest

FORMAT = 4
_OLDEST_FORMAT = 1
BEFORE_VERDICTS = 2
"""The last format in which intents had no verdicts: these were in the manifest before."""


class Intent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one epoch does, the same in every attempt."""

    query: str
    """The id of the query."""
    epoch: int
    now: int
    """The wall-clock time when the epoch was first begun, in microseconds since 1970."""
    settings: Settings
    terms: QueryTerms | None = None
    """What it asks of what may change when a query is started again; None if nothing could change."""
    background_epochs: int | None = None
    """How many epochs' worth of a missing state it computes in the background; None for all."""
    applied_requests: int = 0
    """The number of the last request for another plan that this epoch or one before it applies."""
    request: StoredMigrationRequest | None = None
    """The request for another plan that this epoch applies."""
    verdict: Verdict | None = None
    """What was decided about the plan from the statistics of an earlier epoch, and this one carries out."""
    measurements: tuple[Measurement, ...] = ()
    """What the epoch before it took: from this and what it had done, this one learns what work costs."""
    waiting: StoredMigrationRequest | None = None
    """The request for another plan that waits until what it changes is cleaned up."""
    applied_rescales: int = 0
    """The number of the last request for other partitions that this epoch or one before it applies."""
    partitions: int | None = None
    """The number of engine partitions from this epoch on; None if it stays."""
    waiting_partitions: int | None = None
    """The number that was requested and waits."""
    applied_replacements: int = 0
    """The number of the last request for another definition that this epoch or one before it applies."""
    replacement: ReplacementRequest | None = None
    """The request for another definition that this epoch applies."""
    drains: bool = False
    """Whether it makes all that spilled groups owe."""
    without_batch: bool = False
    """Whether no batch of Spark's belongs to it, only what spilled groups owe."""
    first: Manifest | None = None
    """Of the first epoch only: the manifest that the query began with, which is not in the log."""
    format: int = FORMAT


def encode_intent(intent: Intent) -> bytes:
    """The content of an intent's file."""
    return encode_with_digest("intent", msgspec.json.encode(intent, enc_hook=encode_state_id))


def decode_intent(data: bytes, name: str) -> Intent:
    """The intent in a file; anything wrong with it is an error that names the file."""
    body = decode_with_digest("intent", data, name)
    try:
        intent = msgspec.json.decode(_with_current_manifest(body), type=Intent, dec_hook=decode_state_id)
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as error:  # an upgrade may raise the last three
        raise unreadable(name, error) from None
    if not _OLDEST_FORMAT <= intent.format <= FORMAT:
        must = f"{name} must have a format from {_OLDEST_FORMAT} to {FORMAT}"
        raise CheckpointError(must, got=intent.format, hint=RESTORE)
    return intent


def _with_current_manifest(body: bytes) -> bytes:
    """The JSON of an intent; if it has a manifest of an earlier format, that is upgraded."""
    first = msgspec.json.decode(body, type=_First).first
    if first is None or first["format"] == MANIFEST_FORMAT:
        return body
    fields = msgspec.json.decode(body, type=dict[str, Any])
    return msgspec.json.encode(fields | {"first": upgrade_manifest(first, first["format"], MANIFEST_FORMAT)})


class _First(msgspec.Struct):
    first: dict[str, Any] | None = None
