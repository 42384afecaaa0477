"""The handle of a running query: a ``StreamingQuery`` of Spark's."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from midstream.adapt.explain import explain_adaptive
from midstream.errors import FencedError, MidstreamError, OptionError, StreamError, show_value
from midstream.migration.explain import explain_query
from midstream.migration.request import BackgroundChoice
from midstream.plan.tree import Plan
from midstream.protocol.progress import state_sizes
from midstream.runtime.epoch_reporter import ReportingQuery
from midstream.spark.blocking_call import in_thread, result_of
from midstream.spark.failures import readable_error
from midstream.spark.micro_batch_handler import MicroBatchHandler


# Progress and the error that ended a query are Midstream's own, and not the types that Spark has for them.
class JoinStreamingQuery(ReportingQuery, StreamingQuery):  # type: ignore[misc]
    """A join that runs in the background: Spark's handle of it, with what Midstream knows of it besides."""

    def __init__(self, query: StreamingQuery, driver: MicroBatchHandler) -> None:
        ReportingQuery.__init__(self, driver.reporter)
        StreamingQuery.__init__(self, query._jsq)
        self._handler = driver
        self._end = in_thread("query", self._wait_for_end)

    def _wait_for_end(self) -> None:
        try:
            super().awaitTermination()
        finally:
            # At once: as soon as a query has ended, its checkpoint may be used by another, or be removed.
            self._handler.lease.release()

    @property
    def plan(self) -> Plan:
        """The running plan; ``str()`` gives its text form."""
        return self._handler.coordinator.layout(self._handler.manifest).plan

    def explain(self, extended: bool | str = False) -> None:
        """Print the plan, its key classes and stages, and what its states hold; in a migration, of both.

        ``explain("adaptive")`` prints the statistics of the streams, the plans that were compared last and
        their costs, and why the plan was changed or kept. ``explain(True)``, or ``explain("extended")``, adds
        to the plan what Spark's handle prints: Spark's own plans of the last batch.
        """
        print(self.explanation(extended))

    def explanation(self, extended: bool | str = False) -> str:
        """The text that ``explain`` prints."""
        modes: dict[bool | str, Callable[[], str]] = {
            False: self._explain_plan,
            True: self._explain_extended,
            "simple": self._explain_plan,
            "extended": self._explain_extended,
            "adaptive": self._explain_adaptive,
        }
        if extended not in modes:
            words = ", ".join(repr(mode) for mode in modes)
            raise OptionError(f"what explain prints must be one of {words}", got=show_value(extended))
        return modes[extended]()

    def _explain_plan(self) -> str:
        manifest = self._handler.manifest
        return explain_query(self._handler.coordinator.query, manifest, state_sizes(manifest))

    def _explain_extended(self) -> str:
        return f"{self._explain_plan()}\n\n{self._jsq.explainInternal(True)}"

    def _explain_adaptive(self) -> str:
        manifest, coordinator = self._handler.manifest, self._handler.coordinator
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
        self._handler.migrate(plan, strategy, background=background)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends, but no longer than ``timeout`` seconds; an error that ends it is raised.

        With a ``timeout`` it returns whether the query has ended.
        """
        if timeout is not None and not timeout > 0:
            raise OptionError("a timeout must be a number of seconds above 0", got=show_value(timeout))
        self._must_not_wait_for_itself("awaitTermination")
        try:
            result_of(self._end, timeout)
        except TimeoutError:
            return False
        except StreamingQueryException as error:
            ending = self._ending(error)
            raise ending from ending.__cause__
        return None if timeout is None else True

    def processAllAvailable(self) -> None:  # noqa: N802  # Spark's name
        """Wait until everything that the sources have now is processed and committed."""
        self._must_not_wait_for_itself("processAllAvailable")
        try:
            result_of(in_thread("processAllAvailable", super().processAllAvailable))
        except StreamingQueryException as error:
            ending = self._ending(error)
            raise ending from ending.__cause__

    def stop(self) -> None:
        """Stop the query; started again with the same checkpoint it goes on from here.

        A batch that is running is abandoned, and runs again then; but a function of ``foreachBatch`` that has
        begun is waited for. If such a function, or a listener, calls this, the query stops when it returns.
        """
        stopping = in_thread("stop", super().stop)
        if not self._handler.runs_in_this_thread():
            result_of(stopping)
            self._handler.lease.release()

    def exception(self) -> Exception | None:  # type: ignore[override]  # see the class
        """The error that ended the query, or None."""
        error = super().exception()
        return None if error is None else self._ending(error)

    def _must_not_wait_for_itself(self, method: str) -> None:
        if self._handler.runs_in_this_thread():
            raise StreamError(
                "a query must not be waited for by what it waits for itself",
                got=f"{method} in a listener, or in a function of foreachBatch",
                hint="wait in another thread; stop() may be called, and does not wait here",
            )

    def _ending(self, error: StreamingQueryException) -> Exception:
        """The driver's own error if there was one; else a readable form of Spark's."""
        if self._handler.error is not None:
            return self._handler.error
        try:
            # Spark also ends a driver that was fenced, when it finds offsets of the one that took over.
            self._handler.lease.check()
        except FencedError as fenced:
            fenced.__cause__ = error
            return fenced
        except (OSError, MidstreamError):
            pass  # the cause may have made the checkpoint unreachable, too
        return readable_error(error)

    def __repr__(self) -> str:
        state = "active" if self.isActive else "ended"
        return f"<JoinStreamingQuery {self.name or self.id} {state}: {self.plan}>"
