"""The handle of a running query, shaped like Spark's own ``StreamingQuery``."""

from __future__ import annotations

from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from midstream.adapt.explain import explain_adaptive
from midstream.errors import FencedError, MidstreamError, OptionError, StreamError, show_value
from midstream.migration.explain import explain_query
from midstream.migration.request import BackgroundChoice
from midstream.plan.tree import Plan
from midstream.protocol.progress import state_sizes
from midstream.runtime.epoch_reporter import ReportingQuery
from midstream.spark.driver import Driver
from midstream.spark.failures import readable_error


class JoinStreamingQuery(ReportingQuery):
    """A join that runs in the background. Members that Spark's handle has mean the same here."""

    def __init__(self, query: StreamingQuery, driver: Driver) -> None:
        super().__init__(driver.reporter)
        self._query = query
        self._driver = driver

    @property
    def id(self) -> str:
        """The id of the query; it stays the same when it is restarted from its checkpoint."""
        return self._query.id

    @property
    def runId(self) -> str:  # noqa: N802  # Spark's name
        """The id of this run of the query."""
        return self._query.runId

    @property
    def name(self) -> str | None:
        """The name given by ``queryName``."""
        return self._query.name

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """Whether the query is running."""
        return self._query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """What the query is doing right now, in Spark's words."""
        return self._query.status

    @property
    def plan(self) -> Plan:
        """The running plan; ``str()`` gives its text form."""
        return self._driver.coordinator.layout(self._driver.manifest).plan

    def explain(self, mode: str | None = None) -> None:
        """Print the plan, its key classes and stages, and what its states hold; in a migration, of both.

        ``explain("adaptive")`` prints the statistics of the streams, the plans that were compared last and
        their costs, and why the plan was changed or kept.
        """
        print(self.explanation(mode))

    def explanation(self, mode: str | None = None) -> str:
        """The text that ``explain`` prints."""
        manifest, coordinator = self._driver.manifest, self._driver.coordinator
        if mode is None:
            return explain_query(coordinator.query, manifest, state_sizes(manifest))
        if mode != "adaptive":
            raise OptionError("the mode of explain must be 'adaptive', or be left out", got=show_value(mode))
        adapts = coordinator.settings.adapt
        return explain_adaptive(coordinator.decision_context(manifest), manifest.adaptation, adapts=adapts)

    def migrate(
        self,
        plan: str | Plan,
        strategy: str | None = None,
        *,
        background: BackgroundChoice | None = None,
    ) -> None:
        """Move the running query onto another plan, from its next batch on.

        Without a ``strategy``, or ``background`` work for ``hybrid``, those of the options are used. If a
        migration is under way, the new one begins when that has ended; of several that wait, the last
        counts. A request for the plan that is running already does nothing. A request survives a crash.
        """
        if not self.isActive:
            raise StreamError(
                "a query must be running to change its plan",
                got="one that has ended",
                hint="start it again with the same checkpointLocation, then migrate",
            )
        self._driver.migrate(plan, strategy, background=background)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends; if it ends by an error, raise it."""
        try:
            ended = self._query.awaitTermination(timeout)
        except StreamingQueryException as error:
            self._driver.lease.release()
            ending = self._ending(error)
            raise ending from ending.__cause__
        if ended is not False:
            self._driver.lease.release()
        return ended

    def processAllAvailable(self) -> None:  # noqa: N802  # Spark's name
        """Wait until everything that the sources have now is processed and committed."""
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as error:
            ending = self._ending(error)
            raise ending from ending.__cause__

    def stop(self) -> None:
        """Stop the query; started again with the same checkpoint it goes on from here."""
        self._query.stop()
        self._driver.lease.release()

    def exception(self) -> Exception | None:
        """The error that ended the query, or None."""
        error = self._query.exception()
        return None if error is None else self._ending(error)

    def _ending(self, error: StreamingQueryException) -> Exception:
        """The driver's own error if there was one; else a readable form of Spark's."""
        if self._driver.error is not None:
            return self._driver.error
        try:
            # Spark also ends a driver that was given up, when it finds offsets of the one that took over.
            self._driver.lease.check()
        except FencedError as fenced:
            fenced.__cause__ = error
            return fenced
        except (OSError, MidstreamError):
            pass  # the cause may have made the checkpoint unreachable, too
        return readable_error(error)

    def __repr__(self) -> str:
        state = "active" if self.isActive else "ended"
        return f"<JoinStreamingQuery {self.name or self.id} {state}: {self.plan}>"
