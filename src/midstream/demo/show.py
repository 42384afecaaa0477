"""The display of the running demo: a growing table on a terminal, else a line per epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

TITLE = "orders · payments · picks · shipments · deliveries, within 2 hours"
_BAR = 20
_MIN_WIDTH_WITH_BARS = 104
_PLAN_EVENTS = frozenset(("migration-started", "state-completed", "migration-ended"))


@dataclass(frozen=True)
class Epoch:
    """The figures of an epoch that the demo shows."""

    number: int
    clock: str
    """How far the slowest stream has come, in event time."""
    rows: int
    late: int
    null_keys: int
    """Rows that cannot join with any other."""
    results: int
    state_rows: int
    state_bytes: int
    millis: int

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Epoch:
        """The epoch that a query's progress describes."""
        marks = [mark for mark in progress["watermark"].values() if mark is not None]
        return cls(
            number=progress["batchId"],
            clock=min(marks)[11:16] if marks else "",
            rows=progress["numInputRows"],
            late=progress["numLateRows"],
            null_keys=progress["numNullKeyRows"],
            results=progress["numOutputRows"],
            state_rows=sum(state["rows"] for state in progress["state"].values()),
            state_bytes=progress["stateBytesActive"],
            millis=progress["durationMs"]["total"],
        )

    @property
    def speed(self) -> int:
        """Rows per second."""
        return 1000 * self.rows // max(1, self.millis)

    def __str__(self) -> str:
        return (
            f"epoch {self.number:>3}  {self.clock}  {self.rows:>9,} rows  {self.late:>6,} late  "
            f"{self.results:>9,} results  state {self.state_rows:>10,} rows {_megabytes(self):>9}  "
            f"{self.millis:>6,} ms"
        )


class View:
    """Shows the running demo on a console."""

    def __init__(self, console: Console) -> None:
        self.epochs: list[Epoch] = []
        self.notes: list[str] = []
        """The events of the migration."""
        self._console = console
        self._doing = ""
        self._spinner = Spinner("dots", style="cyan")

    @contextmanager
    def running(self) -> Iterator[View]:
        """Show progress inside the block; the table stays afterwards."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(get_renderable=self._screen, console=self._console, refresh_per_second=10):
            yield self
            self._doing = ""

    def doing(self, what: str) -> None:
        """Show what the demo is doing."""
        self._doing = what
        if not self._console.is_terminal:
            self._console.print(what, soft_wrap=True, highlight=False)

    def epoch(self, progress: Mapping[str, Any]) -> None:
        """Show an epoch, unless it was shown before."""
        epoch = Epoch.of(progress)
        if self.epochs and epoch.number <= self.epochs[-1].number:
            return
        self.epochs.append(epoch)
        messages = [event["message"] for event in progress["events"] if event["type"] in _PLAN_EVENTS]
        self.notes += [f"epoch {epoch.number}: {message}" for message in messages]
        if not self._console.is_terminal:
            for line in (str(epoch), *(f"           {message}" for message in messages)):
                self._console.print(line, soft_wrap=True, highlight=False)

    def _screen(self) -> RenderableType:
        room = max(1, self._console.height - 8 - len(self.notes))
        parts: list[RenderableType] = (
            [epoch_table(self.epochs, room, self._console.width)] if self.epochs else []
        )
        parts += [Text(note, style="blue") for note in self.notes]
        if self._doing:
            self._spinner.update(text=Text(self._doing))
            parts.append(self._spinner)
        return Group(*parts)


def epoch_table(epochs: Sequence[Epoch], room: int, width: int) -> Table:
    """A table of the last epochs, at most ``room`` of them, with totals of all."""
    table = Table(title=TITLE, title_style="bold", box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False)
    rows, late, results, millis = (
        sum(getattr(epoch, name) for epoch in epochs) for name in ("rows", "late", "results", "millis")
    )
    for name, style, total in (
        ("epoch", "dim", "total"),
        ("watermark", "cyan", ""),
        ("rows in", "", f"{rows:,}"),
        ("late", "yellow", f"{late:,}"),
        ("results", "bold green", f"{results:,}"),
        ("time", "", f"{millis / 1000:.1f} s"),
        ("rows/s", "", f"{1000 * rows // max(1, millis):,}"),
        ("state", "", ""),
    ):
        table.add_column(name, total, style=style, justify="right", no_wrap=True)
    wide = width >= _MIN_WIDTH_WITH_BARS
    if wide:
        table.add_column("", no_wrap=True, style="magenta")
    largest = max(epoch.state_bytes for epoch in epochs)
    for epoch in epochs[-room:]:
        bar = "━" * round(_BAR * epoch.state_bytes / max(1, largest))
        table.add_row(
            str(epoch.number),
            epoch.clock,
            f"{epoch.rows:,}",
            f"{epoch.late:,}",
            f"{epoch.results:,}",
            f"{epoch.millis:,} ms",
            f"{epoch.speed:,}",
            _megabytes(epoch),
            *([bar] if wide else []),
        )
    return table


def _megabytes(epoch: Epoch) -> str:
    return f"{epoch.state_bytes / 1e6:.1f} MB"
