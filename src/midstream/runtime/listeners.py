"""Listeners: functions that are called with what a running query reports."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from midstream.errors import OptionError, show_value
from midstream.protocol.event import Event, Severity
from midstream.protocol.progress import EpochProgress, QueryIdentity

Listener = Callable[[Event | EpochProgress], object]
"""Called after each committed epoch, first with every event of it, then with its progress."""

_log = logging.getLogger("midstream")
_LEVELS: Mapping[Severity, int] = {"info": logging.INFO, "warning": logging.WARNING}


def check_listener(listener: object) -> None:
    """Refuse what cannot be called."""
    if not callable(listener):
        raise OptionError(
            "a listener must be a function of one argument",
            got=show_value(listener),
            hint="a StreamingQueryListener goes to spark.streams.addListener",
        )


def log_event(query: QueryIdentity, event: Event) -> None:
    """Write an event to the log, with the query that has it: a process may have several."""
    name = query.name or query.id[:8]
    _log.log(_LEVELS[event.severity], "%s, batch %d: %s", name, event.batch_id, event.message)


class Listeners:
    """The listeners of a query. They may be added and removed from any thread, also by a listener."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: tuple[_Subscription, ...] = ()

    def add(self, listener: Listener) -> None:
        """Call ``listener`` from the next report on; one that was added before is not added again."""
        check_listener(listener)
        with self._lock:
            if all(subscription.listener != listener for subscription in self._subscriptions):
                self._subscriptions = (*self._subscriptions, _Subscription(listener))

    def remove(self, listener: Listener) -> None:
        """Do not call ``listener`` any more; as in Spark, one that was never added is no error."""
        with self._lock:
            self._subscriptions = tuple(s for s in self._subscriptions if s.listener != listener)

    def notify(self, event: Event | EpochProgress) -> None:
        """Call every listener. An error of one is logged, and affects neither the query nor the others."""
        for subscription in self._subscriptions:
            subscription.notify(event)


@dataclass(eq=False)
class _Subscription:
    listener: Listener
    logged: set[tuple[type[Exception], str, int | None]] = field(default_factory=set)
    """Errors of the listener that are in the log: their types, and the lines that raised them."""

    def notify(self, event: Event | EpochProgress) -> None:
        try:
            self.listener(event)
        except Exception as error:
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        """Log an error unless the same line has raised one of this type before.

        A listener that is broken fails after every epoch, and its messages may differ each time.
        """
        raised_in = traceback.extract_tb(error.__traceback__)[-1]
        key = (type(error), raised_in.filename, raised_in.lineno)
        if key in self.logged:
            return
        self.logged.add(key)
        name = getattr(self.listener, "__qualname__", type(self.listener).__qualname__)
        _log.error(
            "listener %s failed; the query goes on, and the same error is not logged again",
            name,
            exc_info=error,
        )
