"""Events: what a person should know of an epoch, beyond its figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from midstream.query.query import Query
from midstream.state.manifest import Manifest

Event = dict[str, Any]


def events_of(query: Query, before: Manifest, after: Manifest) -> list[Event]:
    """What began or ended in the epoch of ``after``."""
    found: list[Event] = []
    for name in query.names:
        was, now = _standing(query, before, name), _standing(query, after, name)
        if was != now:
            found.append({"type": now, "stream": name, "message": _MESSAGES[now].format(name=name)})
    return [
        *found,
        *_future_events(query, before, after),
        *_decision_events(before, after),
        *_migration_events(before, after),
    ]


def _future_events(query: Query, before: Manifest, after: Manifest) -> Iterator[Event]:
    for name in query.names:
        rows = after.streams[name].future - before.streams[name].future
        if rows:
            text = (
                f"stream {name} brought {rows} rows that are further ahead than maxEventTimeAhead: they are "
                "set aside; if their times are right, raise it, or set eventTimeClock to 'stream'"
            )
            yield {"type": "future rows", "stream": name, "rows": rows, "message": text}


def _decision_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    decision = after.adaptation.last_decision
    if decision is None or decision == before.adaptation.last_decision:
        return
    about = f"{decision.plan!r} costs {decision.cost:,.0f}, {decision.best_plan!r} {decision.best_cost:,.0f}"
    yield {
        "type": "decision",
        "verdict": decision.verdict,
        "plan": decision.plan,
        "best": decision.best_plan,
        "changed": list(decision.changed),
        "message": f"decided to {decision.verdict}: {decision.reason} ({about} units/s)",
    }


def _migration_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    migration = after.migration or after.ended_migration
    if migration is None:
        return
    about = {"migration": migration.number, "from": migration.old_plan, "to": migration.new_plan}
    if after.migrations > before.migrations:
        text = (
            f"migration {migration.number} begins: from {migration.old_plan!r} to {migration.new_plan!r} by "
        )
        yield {"type": "migration begins", **about, "message": text + migration.strategy}
    known = before.migration.completed if before.migration else ()
    for state in (s for s in migration.completed if s not in known):
        text = f"migration {migration.number}: the new plan has all of {{{state.label}}} now"
        yield {"type": "state complete", **about, "state": state.label, "message": text}
    if after.ended_migration is not None:
        epochs = after.epoch - migration.start_epoch
        plan = migration.new_plan
        text = f"migration {migration.number} has ended after {epochs} epochs: the plan is {plan!r}"
        yield {"type": "migration ends", **about, "message": text}


_MESSAGES = {
    "active": "stream {name} brings rows again",
    "idle": "stream {name} is idle: state expires without waiting for it",
    "waiting": (
        "stream {name} brings nothing while the others have gone on by more than the window: state grows "
        "until it does; option idleTimeout would go on without it"
    ),
}


def _standing(query: Query, manifest: Manifest, name: str) -> str:
    mark = manifest.streams[name]
    if mark.idle:
        return "idle"
    times = [other.latest for other in manifest.streams.values() if other.latest is not None]
    windows = [bound for *_, bound in query.windows.bounds]
    # Without a window nothing ever expires, so nobody is waited for.
    if not times or not windows or mark.last_active is None:
        return "active"
    return "waiting" if max(times) - mark.last_active > max(windows) else "active"
