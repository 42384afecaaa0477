"""The final report of the demo."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from midstream.demo.check import Comparison
from midstream.demo.report import for_people, for_programs, save_picture
from midstream.demo.run import Demo, DemoOutcome
from midstream.demo.show import Epoch

EXPLANATION = "Plan: a b\n\njoin {a,b} on k0\n├─ a\n└─ b\n\nStages: 1"


def outcome(problem=None, memory=None):
    epochs = tuple(Epoch(n, "08:09", 1_000, 3, 1, 200, 900, 65_000, 7_000 * n, n, 800) for n in range(2))
    notes = ("epoch 1: spilled 1 group",)
    comparison = Comparison(400, 400 if problem is None else 401, problem)
    demo = Demo(2, 1_000, 1, "local[2]", None, memory)
    seconds = {"join": 1.5, "check": 0.25}
    return DemoOutcome(demo, Path("somewhere"), epochs, notes, EXPLANATION, comparison, seconds)


def said(about):
    out = io.StringIO()
    Console(file=out, width=40, force_terminal=False, color_system=None).print(
        for_people(about), soft_wrap=True
    )
    return out.getvalue()


def test_people_read_the_plan_the_verdict_and_where_to_look():
    text = said(outcome())
    assert EXPLANATION in text
    assert "✔ 400 results, equal to DuckDB's batch join" in text
    assert "spark.read.parquet('somewhere/results')" in text
    assert "FROM 'somewhere/results/*.parquet'" in text


def test_people_read_what_differs():
    text = said(outcome("results: 401 rows are wanted, 400 were got"))
    assert "✘ 400 results, not equal to DuckDB's batch join, which has 401" in text
    assert "401 rows are wanted, 400 were got" in text


@pytest.mark.parametrize("problem", [None, "one is missing"])
def test_programs_get_plain_values(problem):
    summary = for_programs(outcome(problem))
    assert json.loads(json.dumps(summary)) == summary
    assert summary["version"] == 1
    assert summary["equal"] == (problem is None)
    assert (summary["rows"], summary["late"], summary["nullKeys"]) == (2_000, 6, 2)
    assert (summary["memory"], summary["mostStateBytesSpilled"]) == (None, 7_000)


def test_the_picture_is_an_svg_that_fetches_nothing(tmp_path):
    save_picture(outcome(), tmp_path / "demo.svg")
    text = (tmp_path / "demo.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert text.rstrip().endswith("</svg>")
    assert "url(" not in text.replace("url(#", "")
    assert "DuckDB" in text
    assert "join" in text


def test_the_picture_with_a_budget_shows_what_is_spilled_and_the_events(tmp_path):
    save_picture(outcome(memory="8m"), tmp_path / "memory.svg")
    text = (tmp_path / "memory.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert "midstream demo --memory 8m" in text
    assert "spilled 1 group" in text
    assert "owing" in text
