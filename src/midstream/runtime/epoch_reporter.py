"""Reporting: how a committed epoch becomes events and progress, the same in every shell."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from midstream.engine.link_traffic import LinkName
from midstream.protocol.events import events_of
from midstream.protocol.health import Health, HealthFacts, HealthLimits
from midstream.protocol.memory_progress import memory_progress
from midstream.protocol.problems import Problem
from midstream.protocol.progress import EpochProgress, QueryIdentity
from midstream.protocol.report import Report
from midstream.protocol.site_events import elsewhere_events
from midstream.protocol.trigger_facts import TriggerFacts
from midstream.query.query import Query
from midstream.runtime.listeners import Listener, Listeners, log_event
from midstream.state.manifest import Manifest

PROGRESS_KEPT = 100


class EpochReporter:
    """Keeps the progress of the last epochs and the query's health; tells the log of events, then listeners.

    Progress, one for every epoch, would flood the log.
    """

    def __init__(self, query: Query, limits: HealthLimits) -> None:
        self.listeners = Listeners()
        self._query = query
        self._limits = limits
        self._health: Health | None = None
        self._elsewhere: Mapping[LinkName, int] = {}
        """The tasks of the last epoch that did not run at their sites."""
        self._progress: deque[EpochProgress] = deque(maxlen=PROGRESS_KEPT)
        """Of epochs with a batch."""
        # In the JSON form, so that it is not made again each time a caller polls the query.
        self._recent: deque[dict[str, Any]] = deque(maxlen=PROGRESS_KEPT)

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The progress of the last epochs, oldest first."""
        return list(self._recent)

    def set_query(self, query: Query) -> None:
        """From now on, epochs are of another definition."""
        self._query = query
        self._health = Health()
        self._progress.clear()

    def report(
        self,
        identity: QueryIdentity,
        *,
        before: Manifest,
        after: Manifest,
        report: Report,
        trigger: TriggerFacts,
        duration_ms: Mapping[str, float],
    ) -> None:
        """Report the epoch that has just led from one manifest to the next."""
        now = datetime.now(UTC)
        progress = EpochProgress.of(
            identity,
            after,
            report,
            trigger=trigger,
            duration_ms=duration_ms,
            timestamp=now,
            earlier=list(self._progress),
        )
        progress = replace(progress, memory=memory_progress(self._query, after, report))
        health = self._health or self._first_health(before, now)
        due: tuple[Problem, ...] = ()
        if after.epochs_without_batch == before.epochs_without_batch:
            # Problems are those of batches: without one, streams have no rows, and sources no backlog.
            self._progress.append(progress)
            facts = HealthFacts(
                query=self._query, limits=self._limits, manifest=after, recent=list(self._progress)
            )
            health, due = health.after(facts, now)
        self._health = health
        elsewhere = elsewhere_events(after.epoch, report.elsewhere, self._elsewhere)
        self._elsewhere = report.elsewhere
        events = (*due, *events_of(self._query, before, after), *elsewhere)
        progress = replace(progress, problems=health.problems, events=events)
        self._recent.append(progress.to_dict())
        for event in events:
            log_event(identity, event)
            self.listeners.notify(event)
        self.listeners.notify(progress)

    def _first_health(self, before: Manifest, now: datetime) -> Health:
        """The health before the first epoch of this run."""
        if before.epoch < 0:
            return Health()
        return Health.resumed(HealthFacts(query=self._query, limits=self._limits, manifest=before), now)


class ReportingQuery:
    """The monitoring methods of every query handle. Names and meanings are Spark's."""

    def __init__(self, reporter: EpochReporter) -> None:
        self._reporter = reporter

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """The progress of the last epoch, or None before the first."""
        recent = self._reporter.recent
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802  # Spark's name
        """The progress of the last epochs, oldest first."""
        return self._reporter.recent

    def addListener(self, listener: Listener) -> None:  # noqa: N802  # Spark's name
        """Call ``listener(event)`` after each epoch from now on.

        It is called with every event of the epoch (:class:`~midstream.protocol.events.Event`), then with its
        progress (:class:`~midstream.protocol.progress.EpochProgress`). ``isinstance`` tells them apart, and
        both have ``to_dict()``. The epoch is committed by then, but the next one waits until the listener
        returns: it should be quick. It may call ``migrate`` and ``stop``, but nothing that waits for the
        query, such as ``awaitTermination``. An error that it raises is logged once and does not end the
        query. An epoch whose driver dies between the commit and the call is not reported.

        A listener is a function and not an object with ``onQueryProgress`` and the like. Such an object
        belongs in ``spark.streams.addListener``, and Spark calls it for this query as well. With the same
        method names here it would have to expect two kinds of arguments.
        """
        self._reporter.listeners.add(listener)

    def removeListener(self, listener: Listener) -> None:  # noqa: N802  # Spark's name
        """Call ``listener`` no longer."""
        self._reporter.listeners.remove(listener)
