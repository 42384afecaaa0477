"""Upgrading manifests of earlier formats to the current one.

A manifest is upgraded when it is read. Nothing is written: the next commit writes the current format.

| format | what changed                                                                                   |
| ------ | ---------------------------------------------------------------------------------------------- |
| 3      | the oldest format that can be read                                                             |
| 4      | leases, rows from the future, slices in order of time; format 3 gets the default values        |
| 5      | new names of fields; the slices of a state that is being rebuilt are of the kind "pending"     |
| 6      | lateness, windows and outputs may change: what the states keep, and changes of the windows     |
| 7      | spilled groups; states that are moved, or go to two locations; decisions made beside epochs;   |
|        | the number of partitions may change: it is in the routings, no longer in the definition;       |
|        | aggregates                                                                                     |
| 8      | aggregates in update mode; before, all were in append mode; what work costs is learned; what   |
|        | migrations turned out to cost and to save; groups may be in other partitions than an even      |
|        | division says, and hot keys in several                                                         |
"""

from __future__ import annotations

from typing import Any

OLDEST_FORMAT = 3

Fields = dict[str, Any]

_MANIFEST_FIELDS = {
    "source": "spark_query",
    "query": "definition",
    "first_plan": "initial_plan",
    "states": "state_ids",
    "ended": "ended_migration",
    "heeded": "applied_requests",
}
_STREAM_FIELDS = {"seen": "last_active"}
_SLICE_FIELDS = {"lower": "first_epoch", "upper": "last_epoch"}
_SLICE_KINDS = {"rows": "payload", "held": "deferred"}
_MIGRATION_FIELDS = {
    "plan": "new_plan",
    "apart": "isolated",
    "start": "start_epoch",
    "states": "state_ids",
    "tables": "handover",
    "marks": "latest_times",
    "computed": "rebuilding",
}
_ENTRY_FIELDS = {"scope": "state"}
_REBUILD_FIELDS = {"begin": "from_epoch"}
_STATISTICS_FIELDS = {"hot": "frequent_keys", "made": "produced", "watched": "observed_seconds"}
_ADAPTATION_FIELDS = {
    "last": "last_decision",
    "at": "decided_at",
    "calm_until": "cooldown_until",
    "migrated": "migrated_at",
    "asked": "requested_plan",
}
_DECISION_FIELDS = {"best": "best_plan", "apart": "isolated", "price": "migration_cost"}

_PENDING_SUFFIX = "~"
"""The suffix with which formats before 5 marked the id of a state that is being rebuilt."""


def upgrade_manifest(fields: Fields, version: int, current: int) -> Fields:
    """The fields of a manifest of an earlier format in the current one; new fields get their defaults."""
    upgraded = _with_new_names(fields) if version < 5 else fields
    upgraded = _with_places(upgraded) if version < 7 else upgraded
    return upgraded | {"format": current, "definition": _with_mode(upgraded["definition"])}


def _with_mode(definition: Fields) -> Fields:
    """The definition of a query before format 8, whose aggregates were in append mode."""
    aggregation = definition["aggregation"]
    return definition | {"aggregation": aggregation and {"mode": "append", **aggregation}}


def _with_places(upgraded: Fields) -> Fields:
    """The fields of a manifest before format 7, whose partitions stay and which has no aggregates."""
    partitions = upgraded["definition"]["options"]["partitions"]
    return upgraded | {
        "definition": upgrade_definition(upgraded["definition"]),
        "routings": [{"since": 0, "partitions": partitions}],
        "ambiguous_migrations": upgraded.get("migrations", 0),
        "unambiguous_since": upgraded["epoch"] + 1,
    }


def upgrade_definition(definition: Fields) -> Fields:
    """The definition of a query before format 7; before format 6 its outputs never changed."""
    options = {name: value for name, value in definition["options"].items() if name != "partitions"}
    return {"keeps": definition["select"], **definition, "aggregation": None, "options": options}


def _with_new_names(fields: Fields) -> Fields:
    """The fields of a manifest of formats 3 or 4 by the names of format 5."""
    upgraded = _rename(fields, _MANIFEST_FIELDS)
    upgraded["streams"] = {
        name: _rename(stream, _STREAM_FIELDS) for name, stream in fields["streams"].items()
    }
    upgraded["slices"] = [_upgrade_slice(slice_) for slice_ in fields.get("slices", ())]
    upgraded["statistics"] = _rename(fields.get("statistics", {}), _STATISTICS_FIELDS)
    upgraded["adaptation"] = _upgrade_adaptation(fields.get("adaptation", {}))
    for name in ("migration", "ended_migration"):
        if upgraded.get(name) is not None:
            upgraded[name] = _upgrade_migration(upgraded[name])
    return upgraded


def _rename(fields: Fields, names: dict[str, str]) -> Fields:
    return {names.get(name, name): value for name, value in fields.items()}


def _upgrade_slice(fields: Fields) -> Fields:
    owner = dict(fields["owner"])
    owner["kind"] = _SLICE_KINDS.get(owner["kind"], owner["kind"])
    if owner["state"].endswith(_PENDING_SUFFIX):
        owner["state"] = owner["state"].removesuffix(_PENDING_SUFFIX)
        owner["kind"] = "pending"
    return _rename(fields, _SLICE_FIELDS) | {"owner": owner}


def _upgrade_migration(fields: Fields) -> Fields:
    upgraded = _rename(fields, _MIGRATION_FIELDS)
    tables = upgraded["handover"].items()
    upgraded["handover"] = {
        state: [_rename(entry, _ENTRY_FIELDS) for entry in entries] for state, entries in tables
    }
    rebuilding = upgraded.get("rebuilding", {}).items()
    upgraded["rebuilding"] = {state: _rename(progress, _REBUILD_FIELDS) for state, progress in rebuilding}
    return upgraded


def _upgrade_adaptation(fields: Fields) -> Fields:
    upgraded = _rename(fields, _ADAPTATION_FIELDS)
    if upgraded.get("last_decision") is not None:
        upgraded["last_decision"] = _rename(upgraded["last_decision"], _DECISION_FIELDS)
    return upgraded
