"""Requests for another plan, kept in the checkpoint until they are applied.

Each is a numbered file of its own that never changes. The intent of an epoch has the request that the epoch
applies, so an epoch that runs again applies the same one, whatever was requested in between. The manifest has
the number of the last request that was applied; of several that wait, the newest counts.
"""

from __future__ import annotations

import re
import threading

import msgspec

from midstream.migration.request import Request, WrittenRequest, decode_request, write_request
from midstream.protocol.intent import Intent
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage.store import Store

REQUESTS = "requests"
_NAME = re.compile(rf"{REQUESTS}/(\d{{6,}})\Z")


class RequestQueue:
    """The requests of a query. One thread adds them while another runs epochs."""

    def __init__(self, store: Store, query: Query) -> None:
        self.lock = threading.RLock()
        """Held while files are added and deleted."""
        self._store = store
        self._query = query
        self._waiting: dict[int, Request] = {}
        self._last = 0

    def load(self, manifest: Manifest, begun: Intent | None) -> None:
        """On start: read the waiting requests; ``begun`` is the intent of the next epoch, if it has one.

        If the manifest of that epoch was damaged, the request that it applies is deleted already. A new one
        must not get its number: the epoch would count it as applied when it has run again.
        """
        for name in filter(_NAME.match, self._store.list(REQUESTS)):
            data = self._store.read(name).to_pybytes()
            self._waiting[_number(name)] = decode_request(self._query, name, data)
        applied = (
            manifest.applied_requests
            if begun is None
            else max(manifest.applied_requests, begun.applied_requests)
        )
        self._last = max((*self._waiting, applied))

    def add(self, request: Request) -> None:
        """Keep a request; the next epoch to begin may apply it."""
        with self.lock:
            data = msgspec.json.encode(write_request(request))
            self._last += 1
            while not self._put(_name(self._last), data):
                self._last += 1
            self._waiting[self._last] = request

    def _put(self, name: str, data: bytes) -> bool:
        """Write a request; False if the name is that of another one, which a fenced driver has made."""
        if self._store.put_if_absent(name, data):
            return True
        # If only the response was lost, the file is ours. A second one would be applied once more.
        if self._store.read(name).to_pybytes() != data:
            return False
        self._store.sync(REQUESTS)
        return True

    def due(self, manifest: Manifest) -> tuple[int, WrittenRequest | None]:
        """The request that the epoch after ``manifest`` should apply, and the number of the last applied."""
        with self.lock:
            ready = [number for number in self._waiting if number > manifest.applied_requests]
            if manifest.migration is not None or not ready:
                return manifest.applied_requests, None
            return max(ready), write_request(self._waiting[max(ready)])

    def leave_out(self, applied: int) -> None:
        """Give new requests later numbers than the last one that an epoch applies that is begun now.

        If a driver that was fenced has begun the epoch, it may have made that request meanwhile, too.
        """
        with self.lock:
            self._last = max(self._last, applied)

    def delete_applied(self, last: int) -> None:
        """Delete the requests up to the last one that was applied."""
        with self.lock:
            for number in [n for n in self._waiting if n <= last]:
                self._store.delete(_name(number))
                del self._waiting[number]


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])


def _name(number: int) -> str:
    return f"{REQUESTS}/{number:06d}"
