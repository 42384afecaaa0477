"""Requests for another plan, which wait until no migration is under way, and for other partitions."""

from __future__ import annotations

import msgspec

from midstream.errors import CheckpointError, OptionError
from midstream.migration.request import Request, WrittenRequest, decode_request, write_request
from midstream.protocol.intent import Intent
from midstream.protocol.rescaling import check_partitions
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.sealed import UNREADABLE, reason_unreadable
from midstream.storage.numbered_requests import REQUESTS, NumberedRequests, RequestKind
from midstream.storage.store import Store

_PARTITIONS = "partitions-"


class RequestQueue:
    """The requests of a query."""

    def __init__(self, store: Store, query: Query, groups: int) -> None:
        def decode(name: str, data: bytes) -> Request:
            return decode_request(query, name, data)

        def decode_partitions(name: str, data: bytes) -> int:
            return _partitions(name, data, groups)

        self._store = store
        kind = RequestKind("", lambda r: msgspec.json.encode(write_request(r)), decode)
        self.plans = NumberedRequests(store, kind)
        partitions = RequestKind(_PARTITIONS, msgspec.json.encode, decode_partitions)
        self.partitions = NumberedRequests(store, partitions)
        """Requests for another number of partitions."""

    def load(self, manifest: Manifest, begun: Intent | None) -> None:
        """On start: read the waiting requests; ``begun`` is the intent of the next epoch, if it has one."""
        files = self._store.list(REQUESTS)
        self.plans.load(files, manifest.applied_requests, begun.applied_requests if begun else None)
        self.partitions.load(files, manifest.applied_rescales, begun.applied_rescales if begun else None)

    def due(self, manifest: Manifest) -> tuple[int, WrittenRequest | None]:
        """The request that the epoch after ``manifest`` should apply, and the number of the last applied."""
        number, request = self.plans.due(manifest.applied_requests)
        if request is None or manifest.migration is not None:
            return manifest.applied_requests, None
        return number, write_request(request)

    def leave_out(self, intent: Intent) -> None:
        """Give new requests later numbers than those that an epoch applies that is begun now."""
        self.plans.leave_out(intent.applied_requests)
        self.partitions.leave_out(intent.applied_rescales)

    def delete_applied(self, manifest: Manifest) -> None:
        """Delete the requests that are applied."""
        self.plans.delete_applied(manifest.applied_requests)
        self.partitions.delete_applied(manifest.applied_rescales)


def _partitions(name: str, data: bytes, groups: int) -> int:
    """The number of partitions in a request's file. One flipped bit makes 8 a 0, so it is checked again."""
    request = f"the request for another number of partitions in {name}"
    hint = f"delete {name} to go on without it"
    try:
        return check_partitions(msgspec.json.decode(data, type=int), groups)
    except UNREADABLE as error:
        got = reason_unreadable(error)
        raise CheckpointError(f"{request} must be readable", got=got, hint=hint) from None
    except OptionError as error:
        raise CheckpointError(f"{request} must be one that can be", got=error.got, hint=hint) from None
