"""Garbage of Python is looked for less often, and not in what is loaded: a twentieth of the time of tests."""

import gc

_NEW_OBJECTS = 50_000
"""How many there are when the youngest are gone through; Python's default is 700."""
_YOUNGER_COLLECTIONS = 5
"""After how many the next older ones are gone through; 10 by default. Sockets may be among the garbage."""


def collect_seldom() -> None:
    """From now on; what is there already is not gone through again."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNGER_COLLECTIONS, _YOUNGER_COLLECTIONS)


def collect_all() -> None:
    """What libraries still have when the process ends, they would tell of."""
    gc.unfreeze()
    gc.collect()
