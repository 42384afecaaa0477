"""Reading pages of Markdown: their blocks of code, their links and their headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int
    output: str | None = None
    """What the block must print: the ``text`` block that follows with only empty lines between."""


def name_of(page: Path) -> str:
    """The page as one would link to it from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    found = []
    for fence, after in zip_longest(fences, fences[1:]):
        follows = after is not None and not text[fence.end() : after.start()].strip()
        output = after[2] if after is not None and follows and after[1] == "text" else None
        line = text.count("\n", 0, fence.start(2)) + 1
        found.append(Block(fence[1], fence[2], line, output if fence[1] == "python" else None))
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """The targets of all links and pictures."""
    for match in _LINK.finditer(prose(page)):
        yield match[1]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as the usual viewers make them up."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(page))
    }


def section(page: Path, marker: str) -> str:
    """What is between ``<!-- marker: begin -->`` and ``<!-- marker: end -->``."""
    found = re.search(
        f"<!-- {marker}: begin.*?-->\n(.*?)<!-- {marker}: end -->",
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert found is not None, f"{name_of(page)} must have a section {marker}"
    return found[1]


def rows_of(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its head; a pipe inside a cell is written with a backslash."""
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [[c.strip().replace(r"\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code_in(text: str) -> list[str]:
    """What is in backticks, on one line."""
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]
