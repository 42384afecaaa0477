"""Many seeds in several processes, each with a time limit: a seed that never ends is named."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.garbage_collection import collect_seldom

T = TypeVar("T")


def run_seeds(run: Callable[[int], T], seeds: Sequence[int], limit_seconds: float) -> list[T]:
    """The outcome of each seed; an error names the seed that failed, or that took too long."""
    outcomes = []
    # New processes, not forks, since the libraries have threads. They are terminated at the end of the block.
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), collect_seldom) as pool:
        results = pool.imap(run, seeds)
        for seed in seeds:
            # The seeds before this one are done, so it has been waited for about as long as it has run.
            try:
                outcomes.append(results.next(limit_seconds))
            except multiprocessing.TimeoutError:
                raise AssertionError(f"seed {seed} must end within {limit_seconds:.0f} seconds") from None
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    return outcomes
