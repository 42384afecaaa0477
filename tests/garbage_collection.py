"""Python collects garbage less often, and not what is loaded: that saves a twentieth of the tests' time."""

import gc

_NEW_OBJECTS = 50_000
"""How many there are when the youngest are gone through; Python's default is 700."""
_YOUNGER_COLLECTIONS = 5
"""After how many the next older ones are gone through; 10 by default. Sockets may be among the garbage."""


def collect_seldom() -> None:
    """Do so from now on; objects that exist already are not gone through again."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNGER_COLLECTIONS, _YOUNGER_COLLECTIONS)


def collect_all() -> None:
    """Do this before the process ends: some libraries print which of their objects are still alive then."""
    gc.unfreeze()
    gc.collect()
