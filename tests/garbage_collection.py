"""Garbage of Python is looked for less often, and not in what is loaded: a twentieth of the time of tests."""

import gc

_NEW_OBJECTS = 50_000
"""How many there are when the youngest are gone through; Python's default is 700."""


def collect_seldom() -> None:
    """From now on; what is there already is not gone through again."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
