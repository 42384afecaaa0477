"""Requests for another plan or definition, which wait while one changes, and for other partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec

from midstream.errors import CheckpointError, OptionError
from midstream.migration.request import (
    MigrationRequest,
    StoredMigrationRequest,
    decode_request,
    write_request,
)
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.check_site_support import check_rescale_of_sites
from midstream.protocol.intent import Intent
from midstream.protocol.replacement_progress import check_none_under_way
from midstream.protocol.rescaling import check_partitions, places_of
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.json_with_digest import UNREADABLE, reason_unreadable
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest
from midstream.storage.intents import find_intent
from midstream.storage.numbered_requests import REQUESTS, NumberedRequests, RequestKind
from midstream.storage.store import Store

_PARTITIONS = "partitions-"
_REPLACEMENT = "replacement-"


class RequestQueue:
    """The requests of a query."""

    def __init__(self, store: Store, query: Query, settings: Settings) -> None:
        def decode(name: str, data: bytes) -> MigrationRequest:
            return decode_request(self._query, name, data)

        def decode_partitions(name: str, data: bytes) -> int:
            return _partitions(name, data, settings.groups)

        self.lock = threading.RLock()
        """Held from the check of a request until it is kept: it may be forbidden by one of another thread."""
        self._store = store
        self._query = query
        self._settings = settings
        self._begun: Intent | None = None
        kind = RequestKind("", lambda r: msgspec.json.encode(write_request(r)), decode)
        self.plans = NumberedRequests(store, kind)
        partitions = RequestKind(_PARTITIONS, msgspec.json.encode, decode_partitions)
        self.partitions = NumberedRequests(store, partitions)
        """Requests for another number of partitions."""
        self.replacements = replacement_requests(store)
        """Requests for another definition."""

    def set_query(self, query: Query) -> None:
        """From now on, requests are for this definition."""
        self._query = query

    def load(self, manifest: Manifest, begun: Intent | None) -> None:
        """On start: read the waiting requests; ``begun`` is the intent of the next epoch, if it has one."""
        files = self._store.list(REQUESTS)
        self._begun = begun
        self.plans.load(files, manifest.applied_requests, begun.applied_requests if begun else None)
        self.partitions.load(files, manifest.applied_rescales, begun.applied_rescales if begun else None)
        replaced = begun.applied_replacements if begun else None
        self.replacements.load(files, manifest.applied_replacements, replaced)

    def next_partitions(self, manifest: Manifest) -> int:
        """The number of partitions when all that was requested is applied."""
        begun = self._begun_after(manifest)
        # The file of a request that a begun epoch applies may be gone, if its manifest was damaged.
        applied = max(manifest.applied_rescales, begun.applied_rescales if begun else 0)
        _, waiting = self.partitions.due(applied)
        return waiting or (begun and begun.partitions) or places_of(manifest).partitions

    def most_partitions(self, manifest: Manifest) -> int:
        """As many partitions as there are, or will be."""
        return max(places_of(manifest).partitions, self.next_partitions(manifest))

    def check_plan(self, manifest: Manifest, plan: Plan) -> None:
        """Refuse a plan that is forbidden in as many partitions as there are, or will be."""
        self._settings.check_plan(self._query, plan, self.most_partitions(manifest))

    def check_partitions(self, manifest: Manifest, partitions: int) -> None:
        """Refuse a number of partitions that is not possible, or that forbids a plan, now or later."""
        check_rescale_of_sites(self._query)
        check_partitions(partitions, self._settings.groups)
        if self._settings.single_partition == "forbid" and partitions > 1:
            # What is forbidden depends on the definition, and that is changing.
            self.check_no_replacement(manifest)
        for plan in self._plans(manifest):
            self._settings.check_plan(self._query, plan, partitions)

    def _plans(self, manifest: Manifest) -> Iterator[Plan]:
        """The current plan, those that the query is about to have, and the one that waits."""
        begun = self._begun_after(manifest)
        begun_request = begun.request if begun is not None else None
        for source in (manifest, begun_request):
            if source is not None:
                yield parse_plan(source.plan, self._query.names)
        if manifest.migration is not None:
            yield parse_plan(manifest.migration.new_plan, self._query.names)
        _, waiting = self.plans.due(manifest.applied_requests)
        if waiting is not None:
            yield waiting.plan

    def _begun_after(self, manifest: Manifest) -> Intent | None:
        """The intent that the last run has begun, as long as its epoch is not committed."""
        return self._begun if self._begun is not None and self._begun.epoch > manifest.epoch else None

    def due(self, manifest: Manifest) -> tuple[int, StoredMigrationRequest | None]:
        """The request that the epoch after ``manifest`` should apply, and the number of the last applied."""
        number, request = self.plans.due(manifest.applied_requests)
        if request is None or _is_changing(manifest):
            return manifest.applied_requests, None
        return number, write_request(request)

    def due_replacement(
        self, manifest: Manifest, must_wait: Callable[[Manifest, ReplacementRequest], bool]
    ) -> tuple[int, ReplacementRequest | None]:
        """The same for another definition, unless it must wait; a plan that waits comes first."""
        number, request = self.replacements.due(manifest.applied_replacements)
        _, plan = self.plans.due(manifest.applied_requests)
        if request is None or plan is not None or _is_changing(manifest) or must_wait(manifest, request):
            return manifest.applied_replacements, None
        return number, request

    def is_changing_plan(self, manifest: Manifest) -> bool:
        """Whether a migration is, or is about to be, under way."""
        begun = self._begun_after(manifest)
        _, waiting = self.plans.due(manifest.applied_requests)
        if begun is not None:
            is_decided = begun.verdict is not None and begun.verdict.migration is not None
            if is_decided or begun.request is not None:
                return True
        return manifest.migration is not None or waiting is not None

    def asked_replacement(self, manifest: Manifest) -> ReplacementRequest | None:
        """The request for another definition that no epoch up to ``manifest`` has applied."""
        begun = self._begun_after(manifest)
        if begun is not None and begun.replacement is not None:
            return begun.replacement
        return self.replacements.due(manifest.applied_replacements)[1]

    def is_replacing(self, manifest: Manifest) -> bool:
        """Whether the definition is, or is about to be, replaced."""
        return manifest.replacement is not None or self.asked_replacement(manifest) is not None

    def check_no_replacement(self, manifest: Manifest) -> None:
        """Refuse what must not be asked for while the definition is, or is about to be, replaced."""
        check_none_under_way(manifest, self.asked_replacement(manifest))

    def skip_numbers_through(self, intent: Intent) -> None:
        """Give new requests later numbers than those that an epoch applies that is begun now."""
        self.plans.skip_numbers_through(intent.applied_requests)
        self.partitions.skip_numbers_through(intent.applied_rescales)
        self.replacements.skip_numbers_through(intent.applied_replacements)

    def delete_applied(self, manifest: Manifest) -> None:
        """Delete the requests that are applied."""
        self.plans.delete_applied(manifest.applied_requests)
        self.partitions.delete_applied(manifest.applied_rescales)
        self.replacements.delete_applied(manifest.applied_replacements)


def _is_changing(manifest: Manifest) -> bool:
    return manifest.migration is not None or manifest.replacement is not None


def replacement_requests(store: Store) -> NumberedRequests[ReplacementRequest]:
    """The requests for another definition that a checkpoint has."""
    kind: RequestKind[ReplacementRequest]
    kind = RequestKind(_REPLACEMENT, msgspec.json.encode, _replacement)
    return NumberedRequests(store, kind)


def asked_definition(store: Store, manifest: Manifest) -> ReplacementRequest | None:
    """On start: the request for another definition that the next epoch has begun with, or that waits."""
    begun = find_intent(store, manifest.epoch + 1)
    if begun is not None and begun.replacement is not None:
        return begun.replacement
    requests = replacement_requests(store)
    requests.load(store.list(REQUESTS), manifest.applied_replacements, None)
    return requests.due(manifest.applied_replacements)[1]


def _replacement(name: str, data: bytes) -> ReplacementRequest:
    try:
        return msgspec.json.decode(data, type=ReplacementRequest)
    except UNREADABLE as error:
        raise CheckpointError(
            f"the request for another definition in {name} must be readable",
            got=reason_unreadable(error),
            hint=f"delete {name} to go on without it",
        ) from None


def _partitions(name: str, data: bytes, groups: int) -> int:
    """The number of partitions in a request's file, checked again: earlier versions wrote no digest."""
    request = f"the request for another number of partitions in {name}"
    hint = f"delete {name} to go on without it"
    try:
        return check_partitions(msgspec.json.decode(data, type=int), groups)
    except UNREADABLE as error:
        got = reason_unreadable(error)
        raise CheckpointError(f"{request} must be readable", got=got, hint=hint) from None
    except OptionError as error:
        must = f"{request} must be possible for this query"
        raise CheckpointError(must, got=error.got, hint=hint) from None
