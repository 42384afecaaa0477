"""The driver of a running query: Spark calls it with each micro-batch, which it runs as the next epoch.

Spark commits its offsets when the call returns. If the process dies before that, Spark gives the same batch
again under the same number, and the newest manifest says whether its epoch was committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from midstream.engine.encode import make_encoders
from midstream.errors import CheckpointError, MidstreamError, QueryError, error_fields, error_from
from midstream.migration.request import BackgroundChoice
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import Plan
from midstream.protocol.health import HealthLimits
from midstream.protocol.progress import QueryIdentity
from midstream.protocol.rescaling import places_of
from midstream.protocol.trigger_facts import TriggerFacts
from midstream.query.query import Query
from midstream.replace.explain import explain_replacement
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.replace.request import make_plan_request, make_replacement
from midstream.runtime.epoch_reporter import EpochReporter
from midstream.runtime.epoch_runner import EpochRunner
from midstream.spark.background_budget import BackgroundBudget
from midstream.spark.compare_frames import check_same_rows
from midstream.spark.execution import SparkExecution
from midstream.spark.join_arguments import session_runs
from midstream.spark.outputs import Outputs
from midstream.spark.query_identity import identity_of, running_query
from midstream.spark.row_source import Sources
from midstream.spark.site_tasks import executor_ids, find_site_hosts
from midstream.spark.source_facts import SourceFacts
from midstream.spark.source_order import check_can_remove
from midstream.spark.stopping import BatchStopped, is_caused_by_stopping
from midstream.spark.task_ranges import SiteHosts
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest
from midstream.storage.lease import Lease

# How long a thread that waits for an epoch of another sleeps before it looks again.
_PATIENCE_SECONDS = 0.1


class MicroBatchHandler:
    """Runs the epochs of one query."""

    def __init__(
        self,
        *,
        runner: EpochRunner,
        session: SparkSession,
        sources: Sources,
        outputs: Outputs,
        lease: Lease,
        limits: HealthLimits,
    ) -> None:
        """``session`` runs the query; ``limits`` say when it has a problem."""
        self.runner = runner
        self.lease = lease
        self.reporter = EpochReporter(runner.coordinator.query, limits)
        self.error: MidstreamError | None = None
        self._session = session
        self._sources = sources
        self._source_facts = SourceFacts(session, sources.frames)
        self._outputs = outputs
        self._budget = BackgroundBudget(limits.interval_ms)
        self._hosts: SiteHosts = {}
        self._executors: frozenset[str] | None = None
        """Those that there were when their hosts were looked for; None before."""
        self._thread: int | None = None
        """That of the epoch that is running."""
        self._epochs = threading.Condition()
        """Held while an epoch runs: those without a batch run in other threads than batches."""
        self._ends = False
        self._gives_up = False
        self._is_closed = False

    @property
    def coordinator(self) -> QueryCoordinator:
        """Plans and commits the epochs."""
        return self.runner.coordinator

    @property
    def manifest(self) -> Manifest:
        """What is committed."""
        return self.runner.manifest

    @property
    def session_runs(self) -> bool:
        """Whether the session of the query was not stopped yet."""
        return session_runs(self._session)

    def migrate(self, plan: str | Plan, strategy: str | None, *, background: BackgroundChoice | None) -> None:
        """Request another plan; None means what the options say."""
        with self.runner.requests.lock:  # an epoch may end a replacement at any time
            if strategy is not None and strategy in BLACK_BOX_STRATEGIES:
                self.runner.request_replacement(make_plan_request(self.runner.running, plan, strategy))
                return
            policy = self.coordinator.settings.policy
            request = policy.request(self.coordinator.query, plan, strategy, background=background)
            self.runner.request_migration(request)

    def replace(
        self,
        query: Query,
        plan: str | Plan | None,
        strategy: str,
        path: str = "",
        *,
        frames: Mapping[str, DataFrame],
    ) -> ReplacementRequest:
        """Request another definition; results of another schema go to a path of their own."""
        with self.runner.requests.lock:  # an epoch may end a replacement at any time
            return self._replace(query, plan, strategy, path, frames)

    def _replace(
        self,
        query: Query,
        plan: str | Plan | None,
        strategy: str,
        path: str,
        frames: Mapping[str, DataFrame],
    ) -> ReplacementRequest:
        query = self._in_output_mode(query)
        request = make_replacement(self.runner.running, query, plan, strategy, path)
        self.check_reads(query, frames)
        request = self._outputs.with_paths(request, query.output_schema, self.manifest.ended_replacement)
        self.runner.request_replacement(request, query)
        return request

    def explain_replace(
        self, query: Query, plan: str | Plan | None, path: str, *, frames: Mapping[str, DataFrame]
    ) -> str:
        """What another definition would change, and what each strategy would take; nothing is done."""
        query = self._in_output_mode(query)

        def check() -> None:
            self.check_reads(query, frames)
            self._outputs.check_path(path, query.output_schema, self.manifest.ended_replacement)

        return explain_replacement(self.runner.running, query, plan, path, check)

    def _in_output_mode(self, query: Query) -> Query:
        """A definition with the output mode of the query, which a join does not say."""
        old = self.coordinator.query.aggregation
        if old is None or not old.is_update_mode or query.aggregation is None:
            return query
        return replace(query, aggregation=replace(query.aggregation, is_update_mode=True))

    def check_reads(self, query: Query, frames: Mapping[str, DataFrame]) -> None:
        """Refuse a definition that needs other rows than those that the running query reads."""
        running, before = self._sources.frames, self.coordinator.query
        added = [name for name in query.names if name not in before.by_name]
        if added:
            raise QueryError(
                "a new definition for a running query must use only streams that the query reads",
                got=f"stream {added[0]}",
                hint="stop the query, and start the new one with the same checkpointLocation and the option "
                "'replace'",
            )
        for name in before.names:
            if name not in query.by_name:
                check_can_remove(name, running)
        whole = self._outputs.keeps_late_rows
        # Whatever the plan, the same columns are read.
        layout = build_layout(query, default_plan(query))
        self._sources.check_columns(
            query, make_encoders(query, layout, places_of(self.manifest), whole_rows=whole)
        )
        columns = {s.name: s.schema.names if whole else query.columns_of(s.name) for s in query.streams}
        check_same_rows(running, frames, columns)

    def rescale(self, partitions: int) -> None:
        """Request another number of engine partitions."""
        self.runner.request_rescale(partitions)

    def close(self) -> None:
        """The query has ended: give the lease back, and wait for what still decides about the plan."""
        with self._epochs:  # one without a batch may be running
            self._is_closed = True
            self.lease.release()
        self.runner.close()

    def runs_in_this_thread(self) -> bool:
        """Whether this is called from a batch: by a listener, or the function of ``foreachBatch``."""
        return self._thread == threading.get_ident()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Run one micro-batch; an error is kept in ``error``, because Spark passes on only its text."""
        running = running_query(self._session, batch)
        try:
            with self._epochs:
                while self._ends and running.isActive:
                    # All that was owed is made, and the query is about to be stopped.
                    self._epochs.wait(_PATIENCE_SECONDS)
                if self._ends:
                    raise BatchStopped(running.runId)
                with self._in_this_thread():
                    self._epoch(batch, batch_id, identity_of(running))
                self._epochs.notify_all()
        except Exception as error:
            if not running.isActive and is_caused_by_stopping(error):
                raise BatchStopped(running.runId) from None
            if not isinstance(error, MidstreamError):
                raise
            self.error = error
            # Spark logs what it is given, twice. The causes are for whoever waits for the query.
            raise error_from(error_fields(error)) from None

    def drain(self, running: StreamingQuery, *, ends: bool = False) -> bool:
        """Make all that spilled groups owe, in epochs without a batch; False if the query ends before.

        ``ends`` if no batch may follow.
        """
        with self._epochs:
            while self.coordinator.owes(self.manifest):
                if self._gives_up or self._is_closed:
                    return False
                if self._epoch_without_batch(identity_of(running)):
                    continue
                if not running.isActive:
                    return False
                # A batch that was begun before a restart comes first.
                self._epochs.wait(_PATIENCE_SECONDS)
            self._ends = self._ends or ends
        return True

    def give_up_draining(self) -> None:
        """The query is being stopped: a drain ends with the epoch that is running."""
        self._gives_up = True

    def _epoch_without_batch(self, identity: QueryIdentity) -> bool:
        """Run an epoch without a batch; False if a batch was begun, and has to run first."""
        before = self.manifest
        trigger = TriggerFacts(started=datetime.now(UTC), previous=None)
        try:
            with self._in_this_thread():
                report = self.runner.run_drain_epoch(self._execution(None), time.time_ns() // 1000)
                if report is None:
                    return False
                self.reporter.report(
                    identity,
                    before=before,
                    after=self.manifest,
                    report=report,
                    trigger=trigger,
                    duration_ms=self.runner.millis,
                )
        finally:
            # It may fail after its commit, and the query goes on.
            self._serve_definition()
        return True

    def _serve_definition(self) -> None:
        """After an epoch: if another definition has replaced the earlier one, what follows is of that."""
        if (ended := self.manifest.ended_replacement) is not None:
            self.reporter.set_query(self.coordinator.query)
            self._outputs.end_replacement(ended)

    @contextmanager
    def _in_this_thread(self) -> Iterator[None]:
        """For an epoch, or one within it. No other thread may be in one: the lock of epochs must be held."""
        outside, self._thread = self._thread, threading.get_ident()
        try:
            yield
        finally:
            self._thread = outside

    def _execution(self, batch: DataFrame | None) -> SparkExecution:
        return SparkExecution(
            batch=batch,
            session=self._session if batch is None else batch.sparkSession,
            store=self.runner.store,
            sources=self._sources,
            outputs=self._outputs,
            hosts=self._site_hosts(),
        )

    def _site_hosts(self) -> SiteHosts:
        """The hosts at each site, looked for again when there are other executors."""
        if self.coordinator.query.topology is None:
            return {}
        context = self._session.sparkContext
        if (executors := executor_ids(context)) != self._executors:
            self._hosts, self._executors = find_site_hosts(context), executors
        return self._hosts

    def _epoch(self, batch: DataFrame, batch_id: int, identity: QueryIdentity) -> None:
        self.runner.bind(identity.id)
        before = self.manifest
        if batch_id == before.batch:
            # The batch was committed, but Spark had not recorded that it was done.
            self.runner.publish()
            return
        if batch_id != before.batch + 1:
            # If another driver took over while this one started, Spark continues after that driver's batches.
            self.lease.check()
            raise CheckpointError(
                f"the next batch must be {before.batch + 1}, the one after the last manifest",
                got=batch_id,
                hint="the folder 'spark' of the checkpoint does not belong to its manifests; restore both",
            )
        shell = self._execution(batch)
        while (report := self.runner.run_epoch(shell, time.time_ns() // 1000, self._budget.next())) is None:
            # An epoch without a batch was begun, by a driver before this one or by a drain that failed.
            self._epoch_without_batch(identity)
            before = self.manifest
        step, total = self.runner.migration_step, self.runner.millis["total"]
        self._budget.learn(step, total, self.runner.replacement_step)
        self._serve_definition()
        if not self._sources.counted_by_spark:
            self._source_facts.count_rows(batch, {name: count.rows for name, count in report.counts.items()})
        self.reporter.report(
            identity,
            before=before,
            after=self.manifest,
            report=report,
            trigger=self._source_facts.trigger(batch),
            duration_ms=self.runner.millis,
        )
