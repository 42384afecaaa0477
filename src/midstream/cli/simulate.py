"""``midstream simulate``: run the core over a failing store, as the tests do."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from midstream.cli.failures import FAILED
from midstream.errors import OptionError


def simulate(
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
) -> None:
    """Simulate queries with crashes, power cuts, failing disks and damaged files; one line per seed.

    The same seed of the same version does the same. The exit code is 1 if a promise was broken.
    """
    if importlib.util.find_spec("duckdb") is None:
        must, hint = "the simulator must have DuckDB as its oracle", "install midstream[testing]"
        raise OptionError(must, got="an environment without it", hint=hint)
    from midstream.testing.simulate import simulate as run

    broken = 0
    with _without_warnings():
        for number in range(seed, seed + count):
            try:
                typer.echo(str(run(number)))
            except AssertionError as error:
                broken += 1
                typer.echo(f"seed {number}: BROKEN: {'; '.join(map(str.strip, str(error).splitlines()))}")
    if broken:
        raise typer.Exit(FAILED)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Warnings about damage are expected in a simulation, and would break the form of one line per seed."""
    log = logging.getLogger("midstream")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
