"""Garbage collection in Spark's Python workers, without what loaded modules are made of."""

from __future__ import annotations

import gc
import sys

from pyspark import TaskContext

_frozen_at: set[int] = set()
"""How many modules were loaded whenever they were exempted."""


def freeze_modules() -> None:
    """At the end of a task: exempt the modules that it has loaded from garbage collection.

    A worker of Spark collects all garbage after every task. That looks at every object of every module, some
    seventy thousand, and takes twenty milliseconds: longer than most tasks of a small epoch. Modules stay
    loaded, so looking at them finds nothing.
    """
    loaded = len(sys.modules)
    if TaskContext.get() is None or loaded in _frozen_at:
        return
    _frozen_at.add(loaded)
    gc.collect()  # what is garbage now would never be collected
    gc.freeze()
