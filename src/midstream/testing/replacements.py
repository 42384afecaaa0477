"""Users of the simulator who have the definition of a query replaced, and start it again meanwhile."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

from midstream.errors import CheckpointError, OptionError, QueryError
from midstream.inline import InlineJoin
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.protocol.query_terms import committed_terms, terms_of
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.manifest import OutputTableName as Table
from midstream.storage.request_queue import asked_definition
from midstream.testing.definitions import Asked, Definitions
from midstream.testing.draw_definition import draw_definition
from midstream.testing.draw_plans import draw_plan
from midstream.testing.faults import FaultStore
from midstream.testing.outcome import SimulationOutcome
from midstream.testing.possible_terms import possible_terms, sound_manifests
from midstream.testing.process import Process
from midstream.testing.store_sink import Reader, StoreSink
from midstream.testing.workload import draw_terms

RATE = 0.15
"""How many of the seeds may have their definition replaced."""
_ELSEWHERE = "elsewhere"


class Replacements:
    """Asks for other definitions now and then, and says with which one a query is started."""

    def __init__(self, outcome: SimulationOutcome, definitions: Definitions, store: FaultStore) -> None:
        # Drawn separately, so that seeds differ only where a definition is replaced.
        self._user = random.Random(f"replacement {outcome.seed}")  # noqa: S311  # it must be reproducible
        self._outcome = outcome
        self._definitions = definitions
        self._store = store
        query = definitions.workload.query
        is_drawn = self._user.random() < RATE and query.topology is None
        self.rate = self._user.choice((0.2, 0.5)) if is_drawn else 0.0
        self.rate_meanwhile = self._user.choice((0.0, 0.01)) if is_drawn else 0.0
        drawn = [draw_definition(self._user, query) for _ in range(2 if is_drawn else 0)]
        self._candidates = [definitions.all[0].asked] if drawn else []
        self._candidates += [
            Asked(other, tuple(draw_terms(self._user, other) for _ in range(2))) for other in drawn
        ]

    def readers(self) -> list[Reader]:
        """Readers of all that is published."""
        tables: list[Table] = ["results"]
        tables += ["late"] if self._definitions.workload.keeps_late else []
        tables += ["successor"] if self.rate else []
        return [Reader(self._store, table) for table in tables]

    def is_asked_for(self) -> bool:
        """Whether a user asks before the next epoch."""
        return self.rate > 0 and self._user.random() < self.rate

    def is_asked_for_meanwhile(self) -> bool:
        """Whether another thread asks now, while an epoch runs."""
        return self.rate_meanwhile > 0 and self._user.random() < self.rate_meanwhile

    def ask(self, query: InlineJoin, life: Process, *, others_paused: bool) -> None:
        """Ask for another definition, unless the query cannot have it now."""
        now = self._definitions.at(query.manifest.epoch)
        asked = self._user.choice([each for each in self._candidates if each is not now.asked])
        path = "" if _have_the_same_outputs(query.query, asked.query) else _ELSEWHERE
        plan = self._user.choice((None, draw_plan(self._user, query.query.names)))
        strategy = self._user.choice(sorted(BLACK_BOX_STRATEGIES))
        if path and now.table != "results":
            return  # results have gone elsewhere before
        sink = life.sinks[1] if path else None
        settings = query.coordinator.settings
        with (
            suppress(OptionError, QueryError),
            self._definitions.requesting(asked, settings, path, others_paused=others_paused),
        ):
            query.replace(asked.query, plan, strategy, path=path, sink=sink)
            self._outcome.features.add("another definition asked for")

    def note_newest(self) -> Manifest | None:
        """The newest manifest, if definitions are replaced: a paused driver may just have written it."""
        manifest = next(sound_manifests(self._store.inner), None) if self.rate else None
        if manifest is not None:
            self._definitions.note(manifest)
        return manifest

    def possible_queries(self) -> list[Query]:
        """The definitions, on any terms, that a query may be started with now; the usual one first."""
        store, first = self._store.inner, self._definitions.all[0].asked
        if not self.rate:
            return possible_terms(store, (first.query, *first.other_terms))
        manifest = self.note_newest()
        if manifest is None:
            return possible_terms(store, (first.query, *first.other_terms))
        now = self._definitions.at(manifest.epoch).asked
        queries = possible_terms(store, (now.query, *now.other_terms))
        new = self._on_its_way(manifest)
        if new is None:
            return queries
        others = [replace(new.query, streams=other.streams) for other in new.other_terms]
        if manifest.memory.cuts or _may_be(new.query, now.query):
            # Refused, as what the old one has spilled is no state of theirs; or they are other terms of it.
            others = []
        if manifest.replacement is not None and self._definitions.workload.may_spill:
            # A query that may be either definition is the new one, unless it has the terms of the old one.
            # The windows of the new one stay as they are.
            terms, within = committed_terms(manifest), terms_of(new.query).within
            queries = [
                query
                for query in queries
                if not _may_be(query, new.query)
                or terms_of(query) == terms
                or terms_of(query).within == within
            ]
        return [new.query, *others, *queries] if self._user.random() < 0.5 else [*queries, new.query, *others]

    def sinks(self, lease: int) -> tuple[StoreSink, ...]:
        """Where a query puts results that is started now, and those of another definition beside them."""
        manifest = self.note_newest()
        table = self._definitions.at(-1 if manifest is None else manifest.epoch).table
        tables: list[Table] = [table, "successor"] if self.rate and table == "results" else [table]
        return tuple(StoreSink(self._store, table, lease) for table in tables)

    def _on_its_way(self, manifest: Manifest) -> Asked | None:
        """The definition that the query is about to get, if there is one."""
        step = manifest.replacement
        if step is not None:
            return None if step.plan_only else self._definitions.asked_for(step.successor.definition)
        with suppress(CheckpointError):
            request = asked_definition(self._store.inner, manifest)
            return None if request is None else self._definitions.asked_for(request.definition)
        return None


def _may_be(query: Query, definition: Query) -> bool:
    """Whether a query differs from a definition in nothing but its terms."""
    parts = [(q.equalities, [r.text for r in q.residuals], q.aggregation) for q in (query, definition)]
    kept = {output.ref for output in definition.kept}
    return parts[0] == parts[1] and kept.issuperset(output.ref for output in query.outputs)


def _have_the_same_outputs(one: Query, other: Query) -> bool:
    updates = [each.aggregation is not None and each.aggregation.is_update_mode for each in (one, other)]
    return updates[0] == updates[1] and bool(one.output_schema.equals(other.output_schema))
