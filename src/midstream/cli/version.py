"""``midstream version`` and ``midstream --version``."""

from __future__ import annotations

import typer

from midstream import __version__


def version() -> None:
    """Show the version."""
    typer.echo(f"midstream {__version__}")


def show_version(given: bool) -> None:
    """Show the version and exit, if the option was given."""
    if given:
        version()
        raise typer.Exit
