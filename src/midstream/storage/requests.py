"""Requests for another plan, kept in the checkpoint until they are heeded.

Each is a file of its own, numbered, and never changed. It says from which epoch on it may be heeded: one that
comes while an epoch runs is for the next, so that an epoch that is run again heeds what it heeded before.
The manifest says up to which number requests have been heeded. So which request an epoch heeds follows
from what lasts, and nothing else; of several that wait, the newest counts.
"""

from __future__ import annotations

import threading

from midstream.migration.request import Request, read_request, write_request
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage.store import Store

REQUESTS = "requests"


class Requests:
    """The requests of a query. One thread asks while another runs epochs."""

    def __init__(self, store: Store, query: Query) -> None:
        self.lock = threading.RLock()
        """Held while files come and go."""
        self._store = store
        self._query = query
        self._waiting: dict[int, tuple[int, Request]] = {}
        self._last = 0
        self._next_epoch = 0

    def find(self, manifest: Manifest) -> None:
        """On start: the requests that were left."""
        self._next_epoch = manifest.epoch + 1
        for name in self._store.list(REQUESTS):
            number = int(name.rpartition("/")[2])
            self._waiting[number] = read_request(self._query, name, self._store.read(name).to_pybytes())
        self._last = max((*self._waiting, manifest.heeded))

    def ask(self, request: Request) -> None:
        """Keep a request; the next epoch to begin may heed it."""
        with self.lock:
            number = self._last + 1
            self._store.put_if_absent(_name(number), write_request(request, self._next_epoch))
            self._waiting[number] = (self._next_epoch, request)
            self._last = number

    def begin(self, manifest: Manifest) -> tuple[int, Request | None]:
        """The epoch after ``manifest`` begins: which request it heeds, see :meth:`due`."""
        with self.lock:
            self._next_epoch = manifest.epoch + 2
            return self.due(manifest)

    def due(self, manifest: Manifest) -> tuple[int, Request | None]:
        """The request that the epoch after ``manifest`` heeds, if any, and the number of the last heeded."""
        if manifest.migration is not None:
            return manifest.heeded, None
        ready = [
            number
            for number, (first, _) in self._waiting.items()
            if number > manifest.heeded and first <= manifest.epoch + 1
        ]
        return (max(ready), self._waiting[max(ready)][1]) if ready else (manifest.heeded, None)

    def forget(self, upto: int) -> None:
        """Remove the requests up to a number."""
        with self.lock:
            for number in [n for n in self._waiting if n <= upto]:
                self._store.delete(_name(number))
                del self._waiting[number]


def _name(number: int) -> str:
    return f"{REQUESTS}/{number:06d}"
