"""Running a query in this process, epoch by epoch, from Arrow tables to Arrow tables."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from midstream.inline.execution import InlineExecution, InlineSink, SinkPublisher
from midstream.migration.request import BackgroundChoice
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.health import HealthLimits
from midstream.protocol.lease import LeaseHandle
from midstream.protocol.progress import QueryIdentity
from midstream.protocol.report import Report
from midstream.protocol.rescaling import places_of
from midstream.protocol.settings import Settings
from midstream.protocol.trigger_facts import TriggerFacts
from midstream.query.query import Query
from midstream.replace.explain import explain_replacement, explain_running
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.replace.request import DEFAULT_STRATEGY, make_plan_request, make_replacement
from midstream.runtime.epoch_reporter import EpochReporter, ReportingQuery
from midstream.runtime.epoch_runner import EpochRunner
from midstream.runtime.partition_task import Clock
from midstream.runtime.plan_decider import Decide, PlanDecider, SynchronousDecider
from midstream.state.manifest import Manifest, OutputTableName
from midstream.storage.lease import seize_lease
from midstream.storage.memory_store import MemoryStore
from midstream.storage.open_checkpoint import as_committed, open_manifest
from midstream.storage.request_queue import asked_definition
from midstream.storage.store import Store


class InlineJoin(ReportingQuery):
    """A query that runs in this process; on a store that was used before, it continues where it stopped."""

    def __init__(  # noqa: PLR0913  # each may be replaced by itself
        self,
        query: Query,
        plan: str | Plan | None = None,
        *,
        settings: Settings = Settings(partitions=2, groups=8),
        store: Store | None = None,
        sink: InlineSink | None = None,
        late_sink: InlineSink | None = None,
        new_sink: InlineSink | None = None,
        lease: LeaseHandle | None = None,
        decider: Callable[[Decide], PlanDecider] = SynchronousDecider,
        clock: Clock | None = None,
    ) -> None:
        """Without a ``sink`` results are only returned; with one they are also staged and published.

        The same goes for late rows, which are otherwise only kept in ``late``, and for results of a new
        definition that has a ``new_sink`` of its own. Without a ``lease`` the one of
        the store is taken, and its previous holder can commit nothing any more. ``decider`` says when the
        query decides about its plan; by default just before each epoch, from what is committed. ``clock``
        measures what the work costs, such as ``time.process_time``; without one nothing is learned of that,
        and a run always does the same.
        """
        self.store = store if store is not None else MemoryStore()
        chosen = parse_plan(plan, query.names) if isinstance(plan, str) else plan
        run = uuid.uuid4().hex
        lease = lease or seize_lease(self.store, run)
        stored = open_manifest(self.store, lease.number)
        if stored is None:
            coordinator = QueryCoordinator(Coordinator(query, settings))
            first = coordinator.initial_manifest("inline", chosen or settings.first_plan(query))
            stored = as_committed(first)
        else:
            asked = asked_definition(self.store, stored.manifest)
            coordinator = QueryCoordinator.resume(query, settings, stored.manifest, asked)
        super().__init__(EpochReporter(coordinator.query, HealthLimits()))
        self.report = Report()
        self.late: dict[str, list[pa.Table]] = {name: [] for name in query.names}
        self.new_results: pa.Table | None = None
        """The results of the last epoch by a new definition, if they have a schema of their own."""
        self._clock = clock
        ended = stored.manifest.ended_replacement
        self._gone_on_after = 0 if ended is None else ended.number
        """The number of the last replacement that it has gone on after."""
        self._identity = QueryIdentity(stored.manifest.id, run, None)
        self._last_started: datetime | None = None
        self._sinks: dict[OutputTableName, InlineSink | None] = {
            "results": sink,
            "late": late_sink,
            "successor": new_sink,
        }
        self._runner = EpochRunner(
            store=self.store,
            coordinator=coordinator,
            committed=stored,
            publisher=SinkPublisher(self._sinks),
            lease=lease,
            run=run,
            decider=decider,
        )
        self._runner.recover()

    @property
    def manifest(self) -> Manifest:
        """What is committed."""
        return self._runner.manifest

    @property
    def coordinator(self) -> QueryCoordinator:
        """What plans and commits the epochs."""
        return self._runner.coordinator

    @property
    def query(self) -> Query:
        """The current definition; while another one replaces it, the old one."""
        return self.coordinator.query

    def migrate(
        self,
        plan: str | Plan,
        strategy: str | None = None,
        *,
        background: BackgroundChoice | None = None,
        isolated: bool | None = None,
    ) -> None:
        """Move the query onto another plan, from the next epoch on, or once a migration has ended.

        None means what the migration policy of the settings says. ``isolated`` says whether a ``hybrid``
        that waits isolates its plans; None leaves that to the statistics of the streams.
        """
        with self._runner.requests.lock:
            if strategy is not None and strategy in BLACK_BOX_STRATEGIES:
                self._runner.request_replacement(make_plan_request(self._runner.running, plan, strategy))
                return
            policy = self.coordinator.settings.policy
            request = policy.request(self.query, plan, strategy, background=background, isolated=isolated)
            self._runner.request_migration(request)

    def replace(
        self,
        query: Query,
        plan: str | Plan | None = None,
        strategy: str = DEFAULT_STRATEGY,
        *,
        path: str = "",
        sink: InlineSink | None = None,
    ) -> None:
        """Go over to another definition, from the next epoch on; progress says when results pass over.

        Results of another schema need a ``path``, a name of their own, and may have a ``sink``.
        """
        with self._runner.requests.lock:
            request = make_replacement(self._runner.running, query, plan, strategy, path)
            self._runner.request_replacement(request, query)
            # The sink of a replacement that has just ended is the query's: it must not be overwritten.
            self._go_on_after_replacement()
            self._sinks["successor"] = sink

    @property
    def is_replacing(self) -> bool:
        """Whether another definition, or plan by a black box, is asked for or under way."""
        return self._runner.requests.is_replacing(self.manifest)

    def explain_replace(self, query: Query, plan: str | Plan | None = None, path: str = "") -> str:
        """What would change, and what each strategy would take; nothing is done."""
        return explain_replacement(self._runner.running, query, plan, path)

    def explain(self) -> str:
        """The plan, and what its states hold; of a replacement also how far it is, and both definitions."""
        return explain_running(self._runner.running)

    @property
    def partitions(self) -> int:
        """The number of engine partitions."""
        return places_of(self.manifest).partitions

    def rescale(self, partitions: int) -> None:
        """Go on with another number of engine partitions, from the next epoch on."""
        self._runner.request_rescale(partitions)

    def run_epoch(
        self,
        arrivals: Mapping[str, pa.Table],
        *,
        background_epochs: int | None = None,
        now: int | None = None,
        drains: bool = False,
    ) -> pa.Table:
        """Run one epoch over new rows by stream, commit it, and return its results.

        ``background_epochs`` is how many epochs' worth of a missing state may be computed in the background,
        ``now`` the time in microseconds since 1970 if it is not that of the wall clock. An epoch that
        ``drains`` makes what spilled groups owe, as much as the budget of memory has room for.
        """
        run = partial(self.try_epoch, arrivals, background_epochs=background_epochs, now=now, drains=drains)
        while (results := run()) is None:
            self.run_drain_epoch(now=now)
        return results

    def try_epoch(
        self,
        arrivals: Mapping[str, pa.Table],
        *,
        background_epochs: int | None = None,
        now: int | None = None,
        drains: bool = False,
    ) -> pa.Table | None:
        """The same, but None if an epoch without rows was begun before, which has to run first."""
        now = time.time_ns() // 1000 if now is None else now
        run = partial(self._runner.run_epoch, now=now, background_epochs=background_epochs, drains=drains)
        return self._run(arrivals, run)

    def drain(self) -> pa.Table:
        """Run epochs without rows until no group owes anything, and return their results."""
        tables = [self.query.output_schema.empty_table()]
        while self.coordinator.owes(self.manifest):
            results = self.run_drain_epoch()
            if results is None:
                break
            tables.append(results)
        return pa.concat_tables(tables)

    def run_drain_epoch(self, *, now: int | None = None) -> pa.Table | None:
        """Run an epoch without rows, which makes what spilled groups owe, and return its results.

        None if an epoch with rows was begun before: it comes first.
        """
        now = time.time_ns() // 1000 if now is None else now
        return self._run({}, partial(self._runner.run_drain_epoch, now=now))

    def _run(
        self, arrivals: Mapping[str, pa.Table], run: Callable[[InlineExecution], Report | None]
    ) -> pa.Table | None:
        shell = InlineExecution(self.store, arrivals, self._sinks, self._clock)
        before = self.manifest
        trigger = TriggerFacts(started=datetime.now(UTC), previous=self._last_started)
        self._last_started = trigger.started
        try:
            report = run(shell)
        finally:
            # Also if it fails after its commit: a drain may, and the query goes on.
            self._go_on_after_replacement()
        if report is None:
            return None
        self.report = report
        for name, table in shell.late_rows:
            self.late.setdefault(name, []).append(table)
        self.new_results = pa.concat_tables(shell.new_tables) if shell.new_tables else None
        self._reporter.report(
            self._identity,
            before=before,
            after=self.manifest,
            report=self.report,
            trigger=trigger,
            duration_ms=self._runner.millis,
        )
        return pa.concat_tables([shell.schema.empty_table(), *shell.tables])

    def _go_on_after_replacement(self) -> None:
        """If the last epoch has ended a replacement, go on with the new definition and its sink."""
        ended = self.manifest.ended_replacement
        if ended is None or ended.number == self._gone_on_after:
            return
        self._gone_on_after = ended.number
        self._reporter.set_query(self.query)
        if ended.path:
            self._sinks |= {"results": self._sinks["successor"], "successor": None}
