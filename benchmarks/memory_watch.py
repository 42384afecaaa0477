"""How much memory this process and all that it started use, beyond what they used at first."""

from __future__ import annotations

import psutil


class MemoryWatch:
    """Made when Spark is idle; asked again and again while a query runs."""

    def __init__(self) -> None:
        self._idle = _used()
        self._most = self._idle

    def sample(self) -> None:
        """Take note of what is used now."""
        self._most = max(self._most, _used())

    def peak(self) -> int:
        """The most that was used at a time, beyond the idle session."""
        return self._most - self._idle


def _used() -> int:
    """The sum over all processes; what several of them share counts once in all."""
    me = psutil.Process()
    total = 0
    for process in (me, *me.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has just ended
    return total
