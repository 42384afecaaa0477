"""``midstream demo``."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from midstream.cli.failures import FAILED, errors_as_json
from midstream.errors import OptionError


def demo(  # noqa: PLR0913, PLR0917  # each is an option of the command
    epochs: Annotated[int, typer.Option(min=1, help="Micro-batches.")] = 16,
    rows: Annotated[int, typer.Option(min=5, help="Input rows per epoch, over all five streams.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes up other rows.")] = 1,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[2]",
    output: Annotated[
        Path | None,
        typer.Option(help="A new or empty folder for everything.", show_default="a temporary one"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="A budget of state in each engine partition, such as 8m: what is beyond it is spilled.",
            show_default="none",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the outcome as JSON.")] = False,
    picture: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Join five streams of a grocery service on Spark, and check the results with DuckDB.

    Progress goes to the standard error, the outcome to the standard output. The exit code is 1 if the
    results are not those of DuckDB.
    """
    if importlib.util.find_spec("duckdb") is None:
        must, hint = "the demo must have DuckDB to check itself", "install midstream[demo]"
        raise OptionError(must, got="an environment without it", hint=hint)
    from midstream.demo.report import for_people, for_programs, save_picture
    from midstream.demo.run import Demo, run
    from midstream.demo.show import View

    with errors_as_json(as_json):
        view = View(Console(stderr=True), with_memory=memory is not None)
        outcome = run(Demo(epochs, rows, seed, master, output, memory), view)
    if picture is not None:
        save_picture(outcome, picture)
    if as_json:
        typer.echo(json.dumps(for_programs(outcome), indent=2))
    else:
        Console().print(for_people(outcome), soft_wrap=True)
    if outcome.comparison.problem is not None:
        raise typer.Exit(FAILED)
