"""The handle of a running query: a ``StreamingQuery`` of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, cast

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from midstream.adapt.explain import explain_adaptive
from midstream.errors import FencedError, MidstreamError, OptionError, StreamError, show_value
from midstream.migration.request import BackgroundChoice
from midstream.plan.explain_sites import SITED_FORMS, explain_sited_as
from midstream.plan.tree import Plan
from midstream.protocol.rescaling import places_of
from midstream.query.query import Query
from midstream.replace.explain import explain_running
from midstream.replace.request import DEFAULT_STRATEGY
from midstream.runtime.epoch_reporter import ReportingQuery
from midstream.sites.explain_adaptive import explain_adaptive_sites
from midstream.spark.blocking_call import in_thread, result_of
from midstream.spark.failures import readable_error
from midstream.spark.micro_batch_handler import MicroBatchHandler
from midstream.spark.option_readers import folder

if TYPE_CHECKING:  # it needs this module to start a query
    from midstream.spark.join import Join

_DRAIN_LATER = "start it again with the same checkpointLocation, then drain it"


# Progress and the error that ended a query are Midstream's own, and not the types that Spark has for them.
class JoinStreamingQuery(ReportingQuery, StreamingQuery):  # type: ignore[misc]
    """A join that runs in the background: Spark's handle of it, with what Midstream knows of it besides."""

    def __init__(self, query: StreamingQuery, handler: MicroBatchHandler, *, is_bounded: bool) -> None:
        """``is_bounded`` if it ends by itself, and is drained then."""
        ReportingQuery.__init__(self, handler.reporter)
        StreamingQuery.__init__(self, query._jsq)
        self._spark_query = query
        self._handler = handler
        self._drains_at_end = is_bounded
        self._end = in_thread("query", self._wait_for_end)

    def _wait_for_end(self) -> None:
        try:
            super().awaitTermination()
            if self._drains_at_end:
                self._handler.drain(self._spark_query)
        finally:
            # At once: as soon as a query has ended, its checkpoint may be used by another, or be removed.
            self._handler.close()

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """Whether the query is running; one that ends by itself does until all that it owes is made."""
        return super().isActive or (self._drains_at_end and not self._end.done())

    @property
    def plan(self) -> Plan:
        """The running plan; ``str()`` gives its text form."""
        return self._handler.coordinator.layout(self._handler.manifest).plan

    def explain(self, extended: bool | str = False) -> None:
        """Print the plan, its key classes and stages, and what its states hold; in a migration, of both.

        ``explain("adaptive")`` prints the statistics of the streams, the plans that were compared last and
        their costs, and why the plan was changed or kept. ``explain(True)``, or ``explain("extended")``, adds
        to the plan what Spark's handle prints: Spark's own plans of the last batch. If streams live at sites,
        ``explain("json")`` and ``explain("mermaid")`` print the plan in these forms.
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
            **{form: partial(self._explain_sited_as, form) for form in SITED_FORMS},
        }
        if not isinstance(extended, bool | str) or extended not in modes:
            words = ", ".join(repr(mode) for mode in modes)
            raise OptionError(f"what explain prints must be one of {words}", got=show_value(extended))
        return modes[extended]()

    def _explain_plan(self) -> str:
        return explain_running(self._handler.runner.running)

    def _explain_sited_as(self, form: str) -> str:
        return explain_sited_as(form, self._handler.coordinator.query, self.plan)

    def _explain_extended(self) -> str:
        return f"{self._explain_plan()}\n\n{self._jsq.explainInternal(True)}"

    def _explain_adaptive(self) -> str:
        manifest, coordinator = self._handler.manifest, self._handler.coordinator
        adapts = coordinator.settings.adapt
        if coordinator.query.topology is not None:
            context = coordinator.decision_context(manifest)
            policy = coordinator.settings.sites
            return explain_adaptive_sites(context, manifest.adaptation, policy, adapts=adapts)
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
        self._check_active("change its plan", "start it again with the same checkpointLocation, then migrate")
        self._handler.migrate(plan, strategy, background=background)

    def replace(
        self,
        new_join: Join,
        strategy: str = DEFAULT_STRATEGY,
        *,
        plan: str | Plan | None = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        """Go over to another definition, from the next batch on, without losing or repeating a result.

        Results up to a time are those of the old definition, later ones those of the new one; an event says
        which time that is. ``strategy`` says how the new definition gets the rows that are stored:
        ``generalized_hybrid`` in portions, ``generalized_moving_state`` at once, or
        ``generalized_parallel_track`` not at all. Without a ``plan`` the current one goes on, if it is one of
        the same streams. Results of another schema go to ``path``, which is the query's from then on.

        Whatever is impossible is refused here, before anything happens. A request survives a crash.
        """
        self._check_active(
            "get another definition",
            "start the new one with the same checkpointLocation and the option replace",
        )
        definition = _definition_of(new_join)
        self._handler.replace(definition, plan, strategy, _folder_of(path), frames=new_join.frames)

    def explain_replace(
        self, new_join: Join, *, plan: str | Plan | None = None, path: str | PathLike[str] | None = None
    ) -> None:
        """Print what would change with another definition, and what each strategy would take.

        Nothing is done: not even a definition that cannot be is an error.
        """
        definition = _definition_of(new_join)
        print(self._handler.explain_replace(definition, plan, _folder_of(path), frames=new_join.frames))

    @property
    def partitions(self) -> int:
        """The number of engine partitions."""
        return places_of(self._handler.manifest).partitions

    def rescale(self, partitions: int) -> None:
        """Go on with another number of engine partitions, from the next batch on.

        Nothing is moved for it, and no batch waits: stored rows are found where they are. Of several requests
        that wait for a batch, the last counts. A request survives a crash.
        """
        self._check_active(
            "change its partitions",
            "start it again with the same checkpointLocation and the option partitions",
        )
        self._handler.rescale(partitions)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends, but no longer than ``timeout`` seconds; an error that ends it is raised.

        With a ``timeout`` it returns whether the query has ended.
        """
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            hint = "leave it out to wait until the query ends"
            raise OptionError(
                "a timeout must be a number of seconds above 0", got=show_value(timeout), hint=hint
            )
        self._check_waits_elsewhere("awaitTermination")
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
        self._check_waits_elsewhere("processAllAvailable")
        try:
            result_of(in_thread("processAllAvailable", super().processAllAvailable))
        except StreamingQueryException as error:
            ending = self._ending(error)
            raise ending from ending.__cause__

    def drain(self) -> None:
        """Make all results that spilled state is needed for, of the rows that were processed so far.

        New batches wait until that is done. With ``stop(drain=True)`` none comes after it.
        """
        self._check_active("drain", _DRAIN_LATER)
        self._check_waits_elsewhere("drain")
        self._drain(ends=False)

    def stop(self, *, drain: bool = False) -> None:
        """Stop the query; started again with the same checkpoint it goes on from here.

        With ``drain``, all results are made first that spilled state is needed for. If some cannot be made,
        because the query has ended already or the drain fails, the query is stopped, and an error says so.

        A batch that is running is abandoned, and runs again then; but a function of ``foreachBatch`` that has
        begun is waited for, and so is an epoch that makes what spilled state is needed for. If such a
        function, or a listener, calls this, the query stops when it returns.
        """
        if not drain:
            self._stop()
            return
        self._check_waits_elsewhere("stop(drain=True)")
        try:
            self._drain(ends=True)
        finally:
            self._stop()

    def _drain(self, *, ends: bool) -> None:
        if not result_of(in_thread("drain", lambda: self._handler.drain(self._spark_query, ends=ends))):
            raise StreamError(
                "a query must run until it is drained", got="one that has ended before", hint=_DRAIN_LATER
            ) from self.exception()

    def _stop(self) -> None:
        self._drains_at_end = False
        self._handler.give_up_draining()
        stopping = in_thread("stop", self._stop_spark)
        if not self._handler.runs_in_this_thread():
            result_of(stopping)
            self._handler.close()

    def stop_at_exit(self) -> None:
        """Stop as the program ends, when no thread can be begun any more."""
        self._drains_at_end = False
        self._handler.give_up_draining()
        # Without a session no batch is running, and Spark would say that it has ended.
        if super().isActive and self._handler.session_runs:
            self._stop_spark()
            wait([self._end])

    def _stop_spark(self) -> None:
        try:
            super().stop()
        except Py4JError:
            # The query ends, but Spark cannot cancel jobs of a session that was stopped before.
            if self._handler.session_runs:
                raise

    def exception(self) -> Exception | None:  # type: ignore[override]  # see the class
        """The error that ended the query, or None."""
        error = super().exception()
        if error is not None:
            return self._ending(error)
        failed = self._end.exception() if self._end.done() else None
        return failed if isinstance(failed, Exception) else None

    def _check_active(self, to_do: str, hint: str) -> None:
        if not self.isActive:
            raise StreamError(f"a query must be running to {to_do}", got="one that has ended", hint=hint)

    def _check_waits_elsewhere(self, method: str) -> None:
        if self._handler.runs_in_this_thread():
            raise StreamError(
                "a listener or a function of foreachBatch must not wait for its own query",
                got=method,
                hint="wait in another thread; stop() may be called, and does not wait here",
            )

    def _ending(self, error: StreamingQueryException) -> Exception:
        """The driver's own error if there was one; else a readable form of Spark's."""
        if self._handler.error is not None:
            # Where in Midstream it was raised is of no use: its text says what matters.
            return self._handler.error.with_traceback(None)
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


def _folder_of(path: str | PathLike[str] | None) -> str:
    """The folder for results of another definition, as the option ``path`` has it; empty if there is none."""
    if path is None:
        return ""
    if not isinstance(path, str | PathLike):
        raise OptionError(
            "path must be a folder", got=show_value(path), hint="write it as text, or leave it out"
        )
    return folder("path", str(fspath(path)))


def _definition_of(new_join: Join) -> Query:
    """What a join asks for; an error if it is something else."""
    query = getattr(new_join, "query", None)
    if query is None or isinstance(new_join, type):
        raise OptionError(
            "another definition must be a join, as it is before writeStream",
            got=show_value(new_join),
            hint="build it as for a start, and leave out .writeStream",
        )
    return cast("Query", query())
