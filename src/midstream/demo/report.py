"""The final report of the demo: for people, as JSON, and as a picture for the manual."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from midstream.demo.run import DemoOutcome
from midstream.demo.show import epoch_table

VERSION = 1
_MIN_WIDTH = 104
_MAX_NOTES = 8
_THEME = TerminalTheme(
    (22, 27, 34),
    (214, 220, 228),
    [
        (72, 79, 88),
        (255, 123, 114),
        (126, 211, 133),
        (229, 192, 123),
        (121, 184, 255),
        (188, 140, 255),
        (118, 207, 217),
        (214, 220, 228),
    ],
)
# Rich's font would be downloaded from the web; the system's own fonts are used instead.
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_FONTS = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"


def for_programs(outcome: DemoOutcome) -> dict[str, Any]:
    """The outcome for JSON; ``version`` is raised when a field is removed or changes its meaning."""
    return {
        "version": VERSION,
        "equal": outcome.comparison.problem is None,
        "problem": outcome.comparison.problem,
        "results": outcome.comparison.results,
        "expected": outcome.comparison.expected,
        "rows": sum(epoch.rows for epoch in outcome.epochs),
        "late": sum(epoch.late for epoch in outcome.epochs),
        "nullKeys": sum(epoch.null_keys for epoch in outcome.epochs),
        "epochs": len(outcome.epochs),
        "memory": outcome.demo.memory,
        "mostStateBytesSpilled": max((epoch.spilled_bytes for epoch in outcome.epochs), default=0),
        "seconds": {name: round(value, 3) for name, value in outcome.seconds.items()},
        "seed": outcome.demo.seed,
        "folder": str(outcome.folder),
    }


def for_people(outcome: DemoOutcome) -> RenderableType:
    """The plan, the comparison, and where the files are."""
    results = outcome.folder / "results"
    return Group(
        Text(outcome.explanation),
        Text(),
        _comparison(outcome),
        Text(),
        Text(f"Streams, results, late rows and checkpoint are in {outcome.folder}. To read the results:"),
        Text(f"  spark.read.parquet({str(results)!r})", style="cyan"),
        Text(f"  duckdb.sql(\"FROM '{results}/*.parquet'\")", style="cyan"),
    )


def save_picture(outcome: DemoOutcome, path: Path) -> None:
    """Draw the last screen of the demo as SVG."""
    tree = Text(outcome.explanation.split("\n\n")[1])
    width = max(_MIN_WIDTH, *(len(line) for line in tree.plain.split("\n")))
    console = Console(record=True, file=io.StringIO(), width=width, color_system="truecolor")
    memory = outcome.demo.memory
    command = "midstream demo" if memory is None else f"midstream demo --memory {memory}"
    console.print(Text(f"$ {command}\n", style="dim"))
    table = epoch_table(outcome.epochs, len(outcome.epochs), width, with_memory=memory is not None)
    # With a budget, what happens to it says more than the plan, which stays.
    below = tree if memory is None else Text("\n".join(outcome.notes[-_MAX_NOTES:]), style="blue")
    console.print(table, below, Text(), _comparison(outcome), sep="\n")
    picture = console.export_svg(title=command, theme=_THEME)
    path.write_text(_FONT.sub("", picture).replace("Fira Code", _FONTS), encoding="utf-8")


def _comparison(outcome: DemoOutcome) -> Text:
    good = outcome.comparison.problem is None
    rows = sum(epoch.rows for epoch in outcome.epochs)
    colour = "green" if good else "red"
    line = Text.assemble(
        ("✔ " if good else "✘ ", f"bold {colour}"),
        (str(outcome.comparison), f"bold {colour}"),
        (f"  ({rows:,} rows in, {sum(outcome.seconds.values()):.0f} s with everything)", "dim"),
    )
    return line if good else Text.assemble(line, "\n", str(outcome.comparison.problem))
