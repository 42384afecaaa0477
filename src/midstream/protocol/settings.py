"""Settings that last: they shape the state, so a checkpoint remembers them and a restart must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from midstream.engine.routing import Routing, even_routing
from midstream.errors import CheckpointError
from midstream.query.query import Query
from midstream.query.types import show_type
from midstream.values import Micros, show_duration


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query runs, apart from what it asks."""

    partitions: int
    groups: int
    idle_timeout: Micros | None = None

    def routing(self) -> Routing:
        """Which engine partition has which partition group."""
        return even_routing(self.partitions, self.groups)


def describe(query: Query, settings: Settings) -> dict[str, Any]:
    """What a restart is held to, as plain values that a person can read in the manifest."""
    return {
        "order": list(query.names),
        "timeZone": query.zone,
        "streams": {
            stream.name: {
                "time": str(stream.time),
                "lateness": show_duration(stream.lateness),
                "columns": {f.name: show_type(f.type) for f in stream.schema},
            }
            for stream in query.streams
        },
        "on": [*map(str, query.equalities), *(residual.text for residual in query.residuals)],
        "within": {f"{a}, {b}": show_duration(bound) for a, b, bound in query.windows.bounds},
        "select": [f"{output.ref} AS {output.name}" for output in query.outputs],
        "options": {"partitions": settings.partitions, "groups": settings.groups},
    }


def must_agree(stored: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuse to go on from a checkpoint of another query, naming the first thing that differs."""
    for path, before, now in _differences(stored, asked, ()):
        raise CheckpointError(
            f"a query must go on with what its checkpoint was made with: {'.'.join(path)} was {before!r}",
            got=repr(now),
            hint="restore it, or start a new query with another checkpointLocation",
        )


def _differences(stored: Any, asked: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any, Any]]:
    if stored == asked:
        return []
    if isinstance(stored, dict) and isinstance(asked, dict):
        keys = dict.fromkeys([*stored, *asked])
        return [
            difference
            for key in keys
            for difference in _differences(stored.get(key), asked.get(key), (*path, key))
        ] or [(path, list(stored), list(asked))]
    return [(path, stored, asked)]
