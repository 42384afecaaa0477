"""Requests of users, kept in the checkpoint until they are applied.

Each is a numbered file of its own that never changes, and has its digest: one flipped bit would make 9
partitions of 8. The intent of an epoch has the request that the epoch applies, so an epoch that runs again
applies the same one, whatever was requested in between. The manifest has the number of the last request that
was applied; of several that wait, the newest counts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from midstream.errors import CheckpointError
from midstream.state.json_with_digest import decode_with_digest, encode_with_digest, has_digest
from midstream.storage.store import Store

R = TypeVar("R")

_NUMBER = re.compile(r"\d{6,}\Z")
REQUESTS = "requests"
_KIND_IN_FILE = "request"


@dataclass(frozen=True)
class RequestKind(Generic[R]):
    """What may be requested, and how it is kept."""

    prefix: str
    """What the names of its files have before the number; kinds have different ones."""
    encode: Callable[[R], bytes]
    decode: Callable[[str, bytes], R]
    """From the name of a file and its content; an error that names the file if it is not valid."""


class NumberedRequests(Generic[R]):
    """The requests of one kind. One thread adds them while another runs epochs."""

    def __init__(self, store: Store, kind: RequestKind[R]) -> None:
        self.lock = threading.RLock()
        """Held while files are added and deleted."""
        self._store = store
        self._kind = kind
        self._waiting: dict[int, R] = {}
        self._last = 0

    def load(self, files: Sequence[str], applied: int, begun: int | None) -> None:
        """On start: read the waiting requests among the files of all kinds.

        ``begun`` is the number of the one that the next epoch applies, if it was begun.

        If the manifest of that epoch was damaged, the request that it applies is deleted already. A new one
        must not get its number: the epoch would count it as applied when it has run again.
        """
        for name in files:
            number = _NUMBER.match(name.removeprefix(f"{REQUESTS}/{self._kind.prefix}"))
            if number is not None:
                self._waiting[int(number[0])] = self._read(name)
        self._last = max((*self._waiting, applied, begun or 0))

    def _read(self, name: str) -> R:
        """The request in a file. Those of earlier versions have no digest."""
        data = self._store.read(name).to_pybytes()
        try:
            body = decode_with_digest(_KIND_IN_FILE, data, name) if has_digest(data) else data
        except CheckpointError as error:
            hint = f"delete {name} to go on without it"
            raise CheckpointError(f"the request in {name} must be whole", got=error.got, hint=hint) from None
        return self._kind.decode(name, body)

    def add(self, request: R) -> None:
        """Keep a request; the next epoch to begin may apply it."""
        with self.lock:
            data = encode_with_digest(_KIND_IN_FILE, self._kind.encode(request))
            self._last += 1
            while not self._put(self._name(self._last), data):
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

    def due(self, applied: int) -> tuple[int, R | None]:
        """The newest request that waits, and its number; else None, and the number of the last applied."""
        with self.lock:
            newest = max((number for number in self._waiting if number > applied), default=None)
            return (applied, None) if newest is None else (newest, self._waiting[newest])

    def skip_numbers_through(self, applied: int) -> None:
        """Give new requests later numbers than the last one that an epoch applies that is begun now.

        If a driver that was fenced has begun the epoch, it may have made that request meanwhile, too.
        """
        with self.lock:
            self._last = max(self._last, applied)

    def delete_applied(self, last: int) -> None:
        """Delete the requests up to the last one that was applied."""
        with self.lock:
            for number in [n for n in self._waiting if n <= last]:
                self._store.delete(self._name(number))
                del self._waiting[number]

    def _name(self, number: int) -> str:
        return f"{REQUESTS}/{self._kind.prefix}{number:06d}"
