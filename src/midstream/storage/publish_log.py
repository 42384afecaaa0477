"""Notes of what was published: readers may move files away, so that the files themselves do not tell."""

from __future__ import annotations

import re

from midstream.errors import CheckpointError
from midstream.state.manifest import Manifest
from midstream.storage.store import Store

PUBLISHED = "published"
_NAME = re.compile(rf"{PUBLISHED}/(\d{{12}})\Z")


def published_epochs(store: Store) -> dict[int, str]:
    """The epochs that are noted, at least the last that was published, and the files that note them."""
    found = (_NAME.match(name) for name in store.list(PUBLISHED))
    return {int(match[1]): match[0] for match in found if match}


def note_published(store: Store, epoch: int) -> None:
    """Note for good that the results of an epoch were published."""
    store.put(f"{PUBLISHED}/{epoch:012d}", b"")
    store.sync(PUBLISHED)


def last_published(store: Store) -> int:
    """The last epoch whose results were published; -1 if there is none."""
    return max(published_epochs(store), default=-1)


def must_be_newest(manifest: Manifest | None, last: int) -> None:
    """Refuse a manifest that is older than what was published last.

    One epoch may be: that of a manifest that was damaged, which runs again.
    """
    epoch = manifest.epoch if manifest is not None else -2
    if last > epoch + 1:
        raise CheckpointError(
            f"the newest manifest must be that of epoch {last}, whose results were published",
            got="none" if manifest is None else f"that of epoch {epoch}",
            hint="manifests were removed, or older ones put back: restore the whole checkpoint from a copy",
        )
