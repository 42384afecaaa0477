"""The glossary has every special noun of the architecture page, and no word that is used nowhere."""

import re
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

# Nouns of the architecture page that have a special meaning.
CORE_NOUNS = {
    *("stream", "predicate", "key class", "window", "result", "plan", "node", "layout", "fragment", "stage"),
    *("engine partition", "partition group", "message", "delta", "delta rule", "candidates", "hot key"),
    *("state", "index rows", "payload", "slice", "index slice", "payload slice", "arrangement", "segment"),
    *("reference", "compaction", "epoch", "watermark", "intent", "program", "step", "report", "coordinator"),
    *("driver", "manifest", "commit", "listener", "publish log", "lease", "retired", "store", "sink"),
    *(
        "migration",
        "request",
        "traits",
        "border",
        "cut",
        "replaced sub-plan",
        "hand-over table",
        "entry",
        "bound",
    ),
    *("restriction", "combined layout", "isolated", "rebuild", "statistics", "unit", "decision", "verdict"),
    *("goal", "hash", "task", "digest", "spilled", "cleanup", "hold", "generation", "budget", "drain"),
    *("place", "routing", "aggregate", "pane", "output watermark", "seed", "promise", "life"),
}


def _terms() -> list[str]:
    """The words in bold in the first column of the glossary's tables."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("|")]
    return [term for cell in cells for term in re.findall(r"\*\*(.+?)\*\*", cell)]


def _text(files: Iterable[Path]) -> str:
    """All words of some files, in lower case, with single spaces."""
    return " ".join(word for file in files for word in file.read_text(encoding="utf-8").lower().split())


def _has(text: str, term: str) -> bool:
    """Whether a term, or a form of it, is in a text as a word of its own."""
    return re.search(rf"\b{re.escape(term.lower())}(s|es|d|ed)?\b", text) is not None


def test_every_word_of_the_glossary_is_used():
    pages = [page for page in ROOT.glob("docs/**/*.md") if page != GLOSSARY]
    text = _text([*pages, *(ROOT / "src").rglob("*.py")])
    assert [term for term in _terms() if not _has(text, term)] == []


def test_every_word_of_the_glossary_is_there_once():
    terms = _terms()
    assert sorted(terms) == sorted(set(terms))


def test_the_core_nouns_of_the_architecture_are_in_the_glossary():
    page = _text([ARCHITECTURE])
    assert [noun for noun in CORE_NOUNS if not _has(page, noun)] == [], "the list must follow the page"
    assert CORE_NOUNS - set(_terms()) == set()
