"""Deciding about the plan beside the epochs: a search for a better plan takes nothing from an epoch.

It begins with what an epoch has committed. Its verdict goes into the intent of the first epoch that is begun
once it is there; that epoch carries it out and commits it. Only then is it a fact: a driver that dies before
has decided nothing, and its successor decides anew, from what is committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from midstream.state.adaptation import Verdict
from midstream.state.manifest import Manifest

Decide = Callable[[Manifest], Verdict | None]
"""What follows from a manifest for the plan, if anything; it may take long."""


@dataclass(frozen=True)
class TimedDecision:
    """What a decider gives: its verdict, and how long it took."""

    manifest: Manifest
    """What it was decided from."""
    verdict: Verdict | None
    """None if nothing was decided."""
    millis: float
    """How long it took."""


def timed_decision(decide: Decide, manifest: Manifest) -> TimedDecision:
    """Decide, and measure how long it takes."""
    begin = time.perf_counter()
    verdict = decide(manifest)
    return TimedDecision(manifest, verdict, 1000 * (time.perf_counter() - begin))


class PlanDecider(Protocol):
    """When a query decides."""

    def begin(self, manifest: Manifest) -> None:
        """Begin to decide, unless a verdict is under way or waits to be taken."""

    def take(self) -> TimedDecision | None:
        """The outcome, if it is there; it is given once."""

    def close(self) -> None:
        """The query ends: nothing is decided any more."""


class SynchronousDecider:
    """Decides at once when the outcome is asked for, so that a run in one thread always does the same."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._manifest: Manifest | None = None

    def begin(self, manifest: Manifest) -> None:
        """Remember what to decide from."""
        self._manifest = manifest

    def take(self) -> TimedDecision | None:
        """Decide."""
        manifest, self._manifest = self._manifest, None
        return None if manifest is None else timed_decision(self._decide, manifest)

    def close(self) -> None:
        """Do nothing."""


class ThreadedDecider:
    """Decides in a thread of its own, while the epochs go on.

    It is Python that computes, so it takes time from the other threads of the driver. Those hardly compute:
    in an epoch they wait for Spark.
    """

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._thread: threading.Thread | None = None
        self._outcome: TimedDecision | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        """A query may end in one thread while another begins to decide."""
        self._closed = False

    def begin(self, manifest: Manifest) -> None:
        """Start a thread, unless the last one is not done, or what it has decided was not taken yet."""
        with self._lock:
            waits = self._outcome is not None and self._outcome.verdict is not None
            if self._closed or self._is_under_way or waits or self._error is not None:
                return
            self._outcome = None
            run = threading.Thread(target=self._run, args=(manifest,), name="midstream deciding", daemon=True)
            self._thread = run
            run.start()

    def take(self) -> TimedDecision | None:
        """The outcome, if the thread is done; what went wrong in it is raised here."""
        if self._is_under_way:
            return None
        if self._error is not None:
            raise self._error
        outcome, self._outcome = self._outcome, None
        return outcome

    def close(self) -> None:
        """Wait until the thread is done: none outlives its query."""
        with self._lock:
            self._closed = True
        if self._thread is not None:
            self._thread.join()

    @property
    def _is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, manifest: Manifest) -> None:
        try:
            self._outcome = timed_decision(self._decide, manifest)
        except Exception as error:  # it ends the query with the next epoch
            self._error = error
