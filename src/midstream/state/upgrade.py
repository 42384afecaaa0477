"""Upgrading manifests of earlier formats: what they said, in the words of the current one.

A manifest is upgraded as it is read. Nothing is written: the next commit writes the current format.

| format | what changed                                                                                   |
| ------ | ---------------------------------------------------------------------------------------------- |
| 3      | the first that is read                                                                         |
| 4      | leases, rows from the future, slices in order of time: what 3 lacks has a default that says so |
| 5      | names; a state that is being rebuilt has slices of a kind of its own                           |
"""

from __future__ import annotations

from typing import Any

OLDEST_FORMAT = 3

Fields = dict[str, Any]

_MANIFEST = {
    "source": "spark_query",
    "query": "definition",
    "first_plan": "initial_plan",
    "states": "state_ids",
    "ended": "ended_migration",
    "heeded": "applied_requests",
}
_STREAM = {"seen": "last_active"}
_SLICE = {"lower": "first_epoch", "upper": "last_epoch"}
_KINDS = {"rows": "payload", "held": "deferred"}
_MIGRATION = {
    "plan": "new_plan",
    "apart": "isolated",
    "start": "start_epoch",
    "states": "state_ids",
    "tables": "handover",
    "marks": "latest_times",
    "computed": "rebuilding",
}
_ENTRY = {"scope": "state"}
_REBUILD = {"begin": "from_epoch"}
_STATISTICS = {"hot": "frequent_keys", "made": "produced", "watched": "observed_seconds"}
_ADAPTATION = {
    "last": "last_decision",
    "at": "decided_at",
    "calm_until": "cooldown_until",
    "migrated": "migrated_at",
    "asked": "requested_plan",
}
_DECISION = {"best": "best_plan", "apart": "isolated", "price": "migration_cost"}

_PENDING = "~"
"""How formats before 5 marked the id of a state whose slices nobody searches yet."""


def upgrade_manifest(fields: Fields, current: int) -> Fields:
    """The fields of a manifest of formats 3 or 4 in the current format."""
    upgraded = _renamed(fields, _MANIFEST) | {"format": current}
    upgraded["streams"] = {name: _renamed(mark, _STREAM) for name, mark in fields["streams"].items()}
    upgraded["slices"] = [_slice(slice_) for slice_ in fields.get("slices", ())]
    upgraded["statistics"] = _renamed(fields.get("statistics", {}), _STATISTICS)
    upgraded["adaptation"] = _adaptation(fields.get("adaptation", {}))
    for name in ("migration", "ended_migration"):
        if upgraded.get(name) is not None:
            upgraded[name] = _migration(upgraded[name])
    return upgraded


def _renamed(fields: Fields, names: dict[str, str]) -> Fields:
    return {names.get(name, name): value for name, value in fields.items()}


def _slice(fields: Fields) -> Fields:
    owner = dict(fields["owner"])
    owner["kind"] = _KINDS.get(owner["kind"], owner["kind"])
    if owner["state"].endswith(_PENDING):
        owner["state"] = owner["state"].removesuffix(_PENDING)
        owner["kind"] = "pending"
    return _renamed(fields, _SLICE) | {"owner": owner}


def _migration(fields: Fields) -> Fields:
    upgraded = _renamed(fields, _MIGRATION)
    tables = upgraded["handover"].items()
    upgraded["handover"] = {
        state: [_renamed(entry, _ENTRY) for entry in entries] for state, entries in tables
    }
    rebuilding = upgraded.get("rebuilding", {}).items()
    upgraded["rebuilding"] = {state: _renamed(progress, _REBUILD) for state, progress in rebuilding}
    return upgraded


def _adaptation(fields: Fields) -> Fields:
    upgraded = _renamed(fields, _ADAPTATION)
    if upgraded.get("last_decision") is not None:
        upgraded["last_decision"] = _renamed(upgraded["last_decision"], _DECISION)
    return upgraded
