"""The manifest: the committed truth after an epoch, and everything needed to continue from there.

It is JSON with a fixed schema: unknown fields, a wrong digest or an unknown format are refused. Each manifest
carries its own digest and that of the previous one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from midstream.errors import FormatError
from midstream.plan.state_id import StateId, decode_state_id, encode_state_id
from midstream.state.adaptation import Adaptation
from midstream.state.balance import Balance
from midstream.state.json_with_digest import (
    RESTORE,
    UNREADABLE,
    decode_with_digest,
    digest,
    encode_with_digest,
    unreadable,
)
from midstream.state.memory import Memory
from midstream.state.migration import Migration
from midstream.state.routing_table import RoutingTable
from midstream.state.slices import Slice
from midstream.state.statistics import Statistics
from midstream.state.upgrade import OLDEST_FORMAT, upgrade_manifest
from midstream.state.window_change import WindowChange

FORMAT = 8


class StreamProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The times of a stream, and how many of its rows were accepted or dropped since the query began."""

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
    """A slice that is unused since this epoch; its file is deleted some epochs later."""

    name: str
    epoch: int


OutputTableName = Literal["results", "late", "successor"]
"""Results of a new box are in a table of their own if their schema differs from that of the old one."""


class OutputFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output file: its name while it is staged, and once it is published."""

    table: OutputTableName
    staged: str
    published: str
    rows: int
    folder: str = ""
    """The id of the folder that it was staged in."""


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A replacement in progress: two boxes run side by side, each with a definition, a plan and states.

    The old box is what the rest of the manifest describes.
    """

    number: int
    strategy: str
    """The name of its strategy (``migration/strategies.py``)."""
    start_epoch: int
    plan_only: bool = False
    """Whether both boxes have the same definition, and only other plans."""
    path: str = ""
    """Where results of the new box go; empty if they go where those of the old one do."""
    old_path: str = ""
    """Where those of the old one go, if that is another place that a restart has to know."""
    history: tuple[str, ...] = ()
    """The streams whose rows the new box gets that the old one has stored."""
    replayed_before: int = 0
    """It has got those that arrived before this epoch."""
    replayed_in: int = 0
    """The epoch in which it got some last; before it got any, the one before it began."""
    empty_portion: int = 0
    """How many epochs the last portion had, if none of their rows was of use any more."""
    live_since: int | None = None
    """The epoch since which it takes new rows; None as long as it is catching up."""
    until: int | None = None
    """Once it is live: results up to this time are the old box's, later ones the new one's. None if there
    were no rows yet, so that all are the new one's."""
    successor: Manifest
    """The new box: what will be the manifest when the old box is done."""


class EndedReplacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A replacement that has ended."""

    number: int
    strategy: str
    start_epoch: int
    live_since: int
    until: int | None
    plan_only: bool = False
    path: str = ""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The committed truth after ``epoch``."""

    id: str
    """The id of the query; its output files carry it."""
    epoch: int
    """The last committed epoch; -1 before the first."""
    spark_query: str
    """Spark's id of the query whose micro-batches are the epochs; empty before the first."""
    definition: dict[str, Any]
    """The query and its persisted options. A restart must have the same, except for its terms: lateness,
    windows and outputs are those of the last epoch."""
    plan: str
    """The running plan; during a migration, the old one."""
    initial_plan: str
    """The plan that the query began with."""
    streams: dict[str, StreamProgress]
    state_ids: dict[StateId, StateId] = {}
    """The ids of the plan's states, where a migration has started them."""
    migration: Migration | None = None
    """The migration in progress."""
    ended_migration: Migration | None = None
    """The migration that ended with this epoch."""
    migrations: int = 0
    """How many migrations have begun."""
    replacement: Replacement | None = None
    """The replacement in progress."""
    ended_replacement: EndedReplacement | None = None
    """The replacement that ended with this epoch."""
    sources: tuple[str, ...] = ()
    """The streams in the order of Spark's sources, an empty name for one that has left; empty if that is the
    order of the definition."""
    handed_over: int | None = None
    """Results up to this time, and windows of them that begin by then, were those of another definition that
    this one has replaced; None if none of them can come any more."""
    replacements: int = 0
    """How many replacements have begun."""
    applied_replacements: int = 0
    """The number of the last request for another definition that was applied."""
    applied_requests: int = 0
    """The number of the last request for another plan that was applied."""
    statistics: Statistics = Statistics()
    """Statistics of the streams."""
    adaptation: Adaptation = Adaptation()
    """The last decision about the plan."""
    memory: Memory = Memory()
    """The groups that are spilled."""
    balance: Balance = Balance()
    """What was done lately to divide state evenly."""
    routings: tuple[RoutingTable, ...]
    """How groups are divided among engine partitions, and were when rows were stored that are still there;
    the last is the current one."""
    applied_rescales: int = 0
    """The number of the last request for another number of partitions that was applied."""
    waiting_partitions: int = 0
    """The number of partitions that was requested, and waits; 0 if none does."""
    ambiguous_migrations: int = 0
    """Rows that migrations up to this number have moved may have the same references in several partitions,
    by a format before 7. While there are some, the number of partitions stays."""
    unambiguous_since: int = 0
    """The first epoch of format 7 or later: references of rows from then on are different everywhere."""
    epochs_without_batch: int = 0
    """How many epochs had no batch of Spark's: they made what spilled groups owed."""
    emitted: int | None = None
    """The windows of aggregates that end by then have left, or in update mode do not change any more; None if
    there are none, or no aggregates."""
    window_changes: tuple[WindowChange, ...] = ()
    """The changes of the windows from before which rows may still be in a result."""
    earlier_outputs: tuple[str, ...] = ()
    """Outputs that results of earlier epochs have, under names that those of the last epoch do not."""
    slices: tuple[Slice, ...] = ()
    retired: tuple[Retired, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    """The files of this epoch's results, so that publishing can be finished after a crash."""
    results: int = 0
    """The number of results since the query began."""
    previous: str = ""
    """Digest of the previous manifest."""
    lease: int = 0
    """The number of the lease under which it was committed."""
    format: int = FORMAT

    @property
    def batch(self) -> int:
        """The number of the last batch of Spark's that is committed; -1 before the first."""
        return self.epoch - self.epochs_without_batch

    @property
    def all_slices(self) -> tuple[Slice, ...]:
        """The slices in use, those of a new box included."""
        return self.slices if self.replacement is None else self.slices + self.replacement.successor.slices

    @property
    def all_retired(self) -> tuple[Retired, ...]:
        """The slices that are unused since lately, those of a new box included."""
        return self.retired if self.replacement is None else self.retired + self.replacement.successor.retired


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest, together with their digest."""
    return encode_with_digest("manifest", manifest_json(manifest))


def digest_of(manifest: Manifest) -> str:
    """The digest that is written with a manifest of the current format."""
    return digest(manifest_json(manifest))


def decode_manifest(data: bytes, name: str) -> tuple[Manifest, str]:
    """A manifest from its bytes, and its digest; if it is not valid, an error that names the file.

    A manifest of an earlier format is upgraded. Its digest stays that of its bytes, which the next manifest
    refers to.
    """
    what = f"manifest {name}"
    body = decode_with_digest("manifest", data, what)
    try:
        version = msgspec.json.decode(body, type=_Version).format
        if not OLDEST_FORMAT <= version <= FORMAT:
            hint = "upgrade Midstream to open it" if version > FORMAT else RESTORE
            must = f"{what} must have a format from {OLDEST_FORMAT} to {FORMAT}"
            raise FormatError(must, got=version, hint=hint)
        current = body
        if version < FORMAT:
            fields = upgrade_manifest(msgspec.json.decode(body, type=dict[str, Any]), version, FORMAT)
            current = msgspec.json.encode(fields)
        return msgspec.json.decode(current, type=Manifest, dec_hook=decode_state_id), digest(body)
    except (
        *UNREADABLE,
        AttributeError,
        KeyError,
        TypeError,
    ) as error:  # an upgrade of a forged one may raise these
        raise unreadable(what, error) from None


def manifest_json(manifest: Manifest) -> bytes:
    """The JSON of a manifest, without its digest."""
    return msgspec.json.encode(manifest, enc_hook=encode_state_id)


class _Version(msgspec.Struct):
    format: int
