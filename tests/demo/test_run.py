"""The whole demo, small, through the command line."""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext

import duckdb
import pytest
from rich.console import Console
from typer.testing import CliRunner

from midstream.cli.main import app
from midstream.demo.run import Demo, run
from midstream.demo.show import View
from midstream.errors import OptionError
from tests.jvm_archive import jvm_environment


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_ends_well_and_leaves_results_that_others_can_read(tmp_path):
    folder = tmp_path / "demo"
    program = "from midstream.cli.main import app; app()"
    command = [sys.executable, "-c", program, "demo", "--epochs", "4", "--rows", "3000"]
    environment = {**os.environ, **jvm_environment()}
    done = subprocess.run(
        [*command, "--output", folder], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"([\d,]+) results, equal to DuckDB's batch join", done.stdout)
    assert found, done.stdout
    count = int(found[1].replace(",", ""))
    assert count > 100
    assert len(duckdb.read_parquet(f"{folder}/results/*.parquet")) == count
    late = duckdb.read_parquet(f"{folder}/late/*.parquet")
    assert set(late.project("reason").fetchall()) == {("late",)}
    epochs = [line for line in done.stderr.splitlines() if line.startswith("epoch")]
    assert len(epochs) == 4
    # Nothing of Spark's own chatter reaches the terminal.
    assert "WARN" not in done.stdout + done.stderr


@pytest.mark.spark
def test_the_demo_within_a_budget_spills_and_cleans_up_before_our_eyes(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.demo.run.spark_session", lambda master, folder: nullcontext(spark))
    command = ["demo", "--epochs", "10", "--rows", "3000", "--memory", "200k", "--json"]
    done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["equal"]
    assert outcome["results"] > 1000
    assert outcome["mostStateBytesSpilled"] > 200_000
    assert "  spilled " in done.stderr
    # Before the end of the input, which makes all that is owed.
    assert ": it was owed for longer than cleanupDelay" in done.stderr
    assert "the query is drained" in done.stderr
    epochs = [line for line in done.stderr.splitlines() if line.startswith("epoch ")]
    assert "   0 groups owe" in epochs[-1]


def test_a_budget_that_is_no_size_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(OptionError, match="memory must be a size such as '512m'"):
        run(Demo(1, 5, 0, "local[1]", tmp_path / "new", "lots"), View(Console()))
    assert not (tmp_path / "new").exists()


def test_the_output_is_never_mixed_with_what_is_there(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(OptionError, match="empty folder"):
        run(Demo(1, 5, 0, "local[1]", tmp_path), View(Console()))
