"""The display of the running demo: a growing table on a terminal, else a line per epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_NOTED_EVENTS = frozenset(
    (
        *("migration-started", "state-completed", "migration-ended"),
        *("state-spilled", "state-cleaned-up", "state-brought-back"),
    )
)
_MAX_NOTES = 6
"""How many of the last events a terminal shows. Each may take two lines."""


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
    """Of active state."""
    spilled_bytes: int
    owing_groups: int
    """How many spilled groups owe something."""
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
            spilled_bytes=progress["stateBytesSpilled"],
            owing_groups=progress["memory"]["owedGroups"],
            millis=progress["durationMs"]["total"],
        )

    @property
    def speed(self) -> int:
        """Rows per second."""
        return 1000 * self.rows // max(1, self.millis)

    def line(self, *, with_memory: bool) -> str:
        """The epoch as a line of text."""
        spilled = f"{_megabytes(self.spilled_bytes):>9} spilled  {self.owing_groups:>4} groups owe  "
        return (
            f"epoch {self.number:>3}  {self.clock}  {self.rows:>9,} rows  {self.late:>6,} late  "
            f"{self.results:>9,} results  state {self.state_rows:>10,} rows "
            f"{_megabytes(self.state_bytes):>9}  {spilled if with_memory else ''}{self.millis:>6,} ms"
        )


class View:
    """Shows the running demo on a console."""

    def __init__(self, console: Console, *, with_memory: bool = False) -> None:
        """``with_memory`` shows what is spilled, in place of rows that are late, and of speed."""
        self.epochs: list[Epoch] = []
        self.notes: list[str] = []
        """What has happened to the plan and to memory."""
        self._console = console
        self._with_memory = with_memory
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
        messages = [event["message"] for event in progress["events"] if event["type"] in _NOTED_EVENTS]
        self.notes += [f"epoch {epoch.number}: {message}" for message in messages]
        if not self._console.is_terminal:
            line = epoch.line(with_memory=self._with_memory)
            for text in (line, *(f"           {message}" for message in messages)):
                self._console.print(text, soft_wrap=True, highlight=False)

    def _screen(self) -> RenderableType:
        notes = self.notes[-_MAX_NOTES:]
        room, width = max(1, self._console.height - 8 - 2 * len(notes)), self._console.width
        parts: list[RenderableType] = []
        if self.epochs:
            parts.append(epoch_table(self.epochs, room, width, with_memory=self._with_memory))
        parts += [Text(note, style="blue") for note in notes]
        if self._doing:
            self._spinner.update(text=Text(self._doing))
            parts.append(self._spinner)
        return Group(*parts)


@dataclass(frozen=True)
class _Column:
    name: str
    style: str
    cell: Callable[[Epoch], str]
    total: Callable[[Sequence[Epoch]], str] = lambda _epochs: ""


def _counter(name: str, field: str, style: str = "") -> _Column:
    """A column of a figure that adds up."""
    return _Column(
        name,
        style,
        lambda epoch: f"{getattr(epoch, field):,}",
        lambda epochs: f"{sum(getattr(epoch, field) for epoch in epochs):,}",
    )


def _millis(epochs: Sequence[Epoch]) -> int:
    return sum(epoch.millis for epoch in epochs)


_EPOCH = _Column("epoch", "dim", lambda epoch: str(epoch.number), lambda _: "total")
_CLOCK = _Column("watermark", "cyan", lambda epoch: epoch.clock)
_ROWS = _counter("rows in", "rows")
_RESULTS = _counter("results", "results", "bold green")
_TIME = _Column(
    "time", "", lambda epoch: f"{epoch.millis:,} ms", lambda all_: f"{_millis(all_) / 1000:.1f} s"
)
_SPEED = _Column(
    "rows/s",
    "",
    lambda epoch: f"{epoch.speed:,}",
    lambda all_: f"{1000 * sum(epoch.rows for epoch in all_) // max(1, _millis(all_)):,}",
)

_COLUMNS = (
    *(_EPOCH, _CLOCK, _ROWS, _counter("late", "late", "yellow"), _RESULTS, _TIME, _SPEED),
    _Column("state", "", lambda epoch: _megabytes(epoch.state_bytes)),
)
_MEMORY_COLUMNS = (
    *(_EPOCH, _CLOCK, _ROWS, _RESULTS, _TIME),
    _Column("active", "", lambda epoch: _megabytes(epoch.state_bytes)),
    _Column("spilled", "yellow", lambda epoch: _megabytes(epoch.spilled_bytes)),
    _Column("owing", "yellow", lambda epoch: f"{epoch.owing_groups:,}"),
)


def epoch_table(epochs: Sequence[Epoch], room: int, width: int, *, with_memory: bool = False) -> Table:
    """A table of the last epochs, at most ``room`` of them, with totals of all."""
    table = Table(title=TITLE, title_style="bold", box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False)
    columns = _MEMORY_COLUMNS if with_memory else _COLUMNS
    for column in columns:
        total = column.total(epochs)
        table.add_column(column.name, total, style=column.style, justify="right", no_wrap=True)
    wide = width >= _MIN_WIDTH_WITH_BARS
    if wide:
        table.add_column("", no_wrap=True)
    largest = max(1, *(epoch.state_bytes + epoch.spilled_bytes for epoch in epochs))
    for epoch in epochs[-room:]:
        table.add_row(*(column.cell(epoch) for column in columns), *([_bar(epoch, largest)] if wide else []))
    return table


def _bar(epoch: Epoch, largest: int) -> Text:
    """Active and spilled state, compared with the most there was of both."""
    active = round(_BAR * epoch.state_bytes / largest)
    both = round(_BAR * (epoch.state_bytes + epoch.spilled_bytes) / largest)
    return Text.assemble(("━" * active, "magenta"), ("╌" * (both - active), "yellow"))


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
