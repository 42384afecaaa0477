"""``midstream``: the commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from midstream.cli.demo import demo
from midstream.cli.failures import Commands
from midstream.cli.fsck import fsck, gc
from midstream.cli.simulate import simulate
from midstream.cli.version import show_version, version
from midstream.cli.watermark import watermark

app = typer.Typer(
    name="midstream",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(fsck)
app.command()(gc)
app.command()(simulate)
app.command()(version)
app.command()(watermark)


@app.callback()
def midstream(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """Continuous multi-way joins on Apache Spark."""
