"""Keeping intents: one small file per epoch, written once, before the epoch first runs.

    intents/<epoch>.json

The first attempt of an epoch writes it; every other one reads it back. It is kept until the manifest of its
epoch is no longer the newest: until then the epoch may have to run again. An intent that cannot be
carried out is not deleted, since another driver may go by it already: a second one, ``<epoch>-2.json``, takes
its place.
"""

from __future__ import annotations

import re

from midstream.errors import CheckpointError
from midstream.protocol.intent import Intent, decode_intent, encode_intent
from midstream.state.json_with_digest import RESTORE
from midstream.storage.store import Store

FOLDER = "intents"
_NAME = re.compile(rf"{FOLDER}/(\d{{12}})(?:-2)?\.json\Z")


def write_or_read_intent(store: Store, intent: Intent) -> Intent:
    """The intent of an epoch: this one, or that of an earlier attempt if there was one."""
    name = intent_name(intent.epoch)
    if store.put_if_absent(name, encode_intent(intent)):
        return intent
    # If only the response was lost, it is our own: as if an earlier attempt had died right here.
    return _read(store, intent.epoch)


def replace_intent(store: Store, intent: Intent) -> None:
    """Replace the intent of an epoch that has had no effects yet."""
    store.put_if_absent(_replacement_name(intent.epoch), encode_intent(intent))


def find_intent(store: Store, epoch: int) -> Intent | None:
    """The intent of an epoch that was begun; None if it never was."""
    return _read(store, epoch) if intent_name(epoch) in store.list(FOLDER) else None


def _read(store: Store, epoch: int) -> Intent:
    second = _replacement_name(epoch)
    name = second if second in store.list(FOLDER) else intent_name(epoch)
    # Whoever wrote it may have failed before it was durable.
    store.sync(FOLDER)
    intent = decode_intent(store.read(name).to_pybytes(), name)
    if intent.epoch != epoch:
        raise CheckpointError(
            f"{name} must be the intent of its epoch", got=f"that of epoch {intent.epoch}", hint=RESTORE
        )
    return intent


def delete_intent(store: Store, epoch: int) -> None:
    """Remove the intent of an epoch."""
    store.delete(intent_name(epoch))


def stale_intents(store: Store, epoch: int) -> list[str]:
    """The intents that are no longer needed once ``epoch`` is committed."""
    matches = (_NAME.match(name) for name in store.list(FOLDER))
    return [match[0] for match in matches if match and int(match[1]) < epoch]


def intent_name(epoch: int) -> str:
    """The file of an intent."""
    return f"{FOLDER}/{epoch:012d}.json"


def _replacement_name(epoch: int) -> str:
    return f"{FOLDER}/{epoch:012d}-2.json"
