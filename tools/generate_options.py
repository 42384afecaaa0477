"""Writes the guide's table of options from the records that the writer reads options by.

Run it after a change of `midstream.spark.options`; a test fails while the guide is behind.
"""

import re
from pathlib import Path

from midstream.spark.options import OPTIONS

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"

_BETWEEN = re.compile(r"(<!-- options: begin.*?-->\n).*?(<!-- options: end -->)", re.DOTALL)


def options_table() -> str:
    """The options as a Markdown table."""
    lines = ["| option | default | may change at a restart | meaning |", "| --- | --- | --- | --- |"]
    for option in OPTIONS:
        cells = (f"`{option.name}`", option.shown_default, option.may_change, option.meaning)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def with_options(page: str) -> str:
    """A page with the table between its markers brought up to date."""
    if not _BETWEEN.search(page):
        raise ValueError("the page must have <!-- options: begin --> and <!-- options: end -->")
    return _BETWEEN.sub(lambda found: found[1] + options_table() + found[2], page)


if __name__ == "__main__":
    GUIDE.write_text(with_options(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
