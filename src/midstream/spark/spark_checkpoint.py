"""Spark's half of a checkpoint: where it is, and which batches Spark has recorded in it as done.

Our half, manifests and slices, is in :mod:`midstream.storage`. The halves must belong together, so manifests
that are older than Spark's half are refused.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from midstream.errors import CheckpointError
from midstream.state.manifest import Manifest
from midstream.storage.remote import is_remote
from midstream.storage.store import Store


def temporary_checkpoint() -> str:
    """A checkpoint for a query without a checkpointLocation; it is removed when this process ends.

    As in Spark, sinks that do not persist results need no persistent checkpoint.
    """
    folder = tempfile.mkdtemp(prefix="midstream-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def spark_folder(checkpoint: str) -> str:
    """Where Spark keeps its half of a checkpoint; like ours, only the owner can read it."""
    if is_remote(checkpoint):
        return f"{checkpoint}/spark"
    folder = Path(checkpoint, "spark")
    if folder.is_symlink():
        raise CheckpointError("a checkpoint must have plain files and folders", got=f"a link {folder}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return f"file://{folder}"


def last_batch_done(store: Store) -> int:
    """The last batch that Spark has recorded as done; -1 if there is none."""
    names = (name.rpartition("/")[2] for name in store.list("spark/commits"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def check_as_new_as_spark(stored: Manifest | None, last_done: int) -> None:
    """Refuse manifests older than Spark's half by more than one epoch, whose manifest may be damaged."""
    batch = stored.batch if stored is not None else -2
    if last_done > batch + 1:
        raise CheckpointError(
            f"the newest manifest must be that of batch {last_done}, which Spark has noted as done",
            got="none" if stored is None else f"that of batch {batch}",
            hint="manifests were removed, or older ones put back: restore the whole checkpoint from a copy",
        )


def unmark_batch_done(store: Store, batch: int) -> None:
    """Remove Spark's record that a batch is done, so that it repeats the batch."""
    for name in (f"{batch}", f".{batch}.crc"):
        store.delete(f"spark/commits/{name}")
