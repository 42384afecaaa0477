"""The publish log: which files the results of an epoch are published from, noted before the first of them is.

    published/<epoch>

Readers may move files away as soon as they see them, so published files do not tell what was published.
Staged files do: publishing renames them, so one that is no longer staged was published. But only the manifest
of the epoch names them; if it is damaged, the epoch runs again and stages other files. So the names are noted
first.

The first attempt that comes to publish an epoch writes its note, by ``put_if_absent``. Every attempt
publishes the files that the note lists, whatever it has staged itself: what an earlier attempt has published
is not published again, and the rest is published from the same files.

The note of the epoch before is deleted when all is published. As long as there is an earlier note, publishing
may have been cut off, and is repeated.

    41          epoch 41 is published
    41  42      epoch 42 is being published, or its publishing was cut off
        42      epoch 42 is published

An empty note says that its epoch is published. One is written where there is no earlier note, such as before
the first epoch. In checkpoints of earlier versions, which noted an epoch afterwards, all are empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from midstream.errors import CheckpointError
from midstream.state.json_with_digest import (
    RESTORE,
    UNREADABLE,
    decode_with_digest,
    encode_with_digest,
    unreadable,
)
from midstream.state.manifest import Manifest, OutputFile
from midstream.storage.store import Store

FOLDER = "published"
_KIND = "publication"
_NAME = re.compile(rf"{FOLDER}/(-?\d+)\Z")


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a note says."""

    query: str
    epoch: int
    outputs: tuple[OutputFile, ...]


@dataclass(frozen=True)
class Publication:
    """The results of an epoch, to be published."""

    outputs: tuple[OutputFile, ...]
    earlier_notes: tuple[str, ...]
    """To be deleted when all outputs are published."""


def noted_epochs(store: Store) -> dict[int, str]:
    """The epochs whose publishing was begun, at least the last of them, and the files that note them."""
    matches = (_NAME.match(name) for name in store.list(FOLDER))
    return {int(match[1]): match[0] for match in matches if match}


def last_noted(store: Store) -> int:
    """The last epoch whose publishing was begun; -1 if there is none."""
    # The driver that wrote a note may have failed before it was durable.
    store.sync(FOLDER)
    return max(noted_epochs(store), default=-1)


def is_published(noted: Mapping[int, str], epoch: int) -> bool:
    """Whether all results of a committed epoch are published, as far as that is noted."""
    # No epoch begins before the one before it is published.
    return max(noted, default=-1) > epoch or (epoch in noted and min(noted) == epoch)


def begin_publishing(store: Store, manifest: Manifest) -> Publication | None:
    """Note for good what an epoch is published from; None if all of it is published."""
    epoch, noted = manifest.epoch, noted_epochs(store)
    if epoch < 0 or is_published(noted, epoch):
        return None
    earlier = [name for other, name in noted.items() if other < epoch]
    if not earlier:
        earlier = [_name(epoch - 1)]
        _put_for_good(store, earlier[0], b"")
    note = _Note(query=manifest.id, epoch=epoch, outputs=manifest.outputs)
    outputs = manifest.outputs
    if not _put_for_good(store, _name(epoch), encode_with_digest(_KIND, msgspec.json.encode(note))):
        outputs = noted_outputs(store, manifest.id, epoch)
    return Publication(outputs, tuple(earlier))


def noted_outputs(store: Store, query: str, epoch: int) -> tuple[OutputFile, ...]:
    """The files that an epoch is published from, by its note; an error if that is not what was written."""
    name = _name(epoch)
    data = store.read(name).to_pybytes()
    if not data:
        return ()
    body = decode_with_digest(_KIND, data, name)
    try:
        note = msgspec.json.decode(body, type=_Note)
    except UNREADABLE as error:
        raise unreadable(name, error) from None
    if (note.query, note.epoch) != (query, epoch):
        raise CheckpointError(
            f"{name} must be the note of its epoch and query",
            got=f"that of epoch {note.epoch} of query {note.query}",
            hint=RESTORE,
        )
    return note.outputs


def check_newest(manifest: Manifest | None, last: int) -> None:
    """Refuse a manifest that is older than the last one whose results readers may have seen.

    One epoch may be missing: that of a manifest that was damaged, which runs again.
    """
    epoch = manifest.epoch if manifest is not None else -2
    if last > epoch + 1:
        raise CheckpointError(
            f"the newest manifest must be that of epoch {last}, whose results were published",
            got="none" if manifest is None else f"that of epoch {epoch}",
            hint="manifests were removed, or older ones put back: restore the whole checkpoint from a copy",
        )


def _put_for_good(store: Store, name: str, data: bytes) -> bool:
    """Write a note unless there is one; either way it is durable."""
    if store.put_if_absent(name, data):
        return True
    store.sync(FOLDER)
    return False


def _name(epoch: int) -> str:
    return f"{FOLDER}/{epoch:012d}"
