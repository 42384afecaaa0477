"""``midstream version`` and ``midstream --version``."""

from __future__ import annotations

import typer

from midstream import __version__


def version() -> None:
    """Show the version."""
    typer.echo(f"midstream {__version__}")


def show_version(wanted: bool) -> None:
    """Show the version, if that is wanted, and exit."""
    if wanted:
        version()
        raise typer.Exit
