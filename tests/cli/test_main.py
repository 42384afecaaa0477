"""The command line: what it says, where, and how it exits."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import midstream
from midstream.cli.failures import Commands
from midstream.cli.main import app
from midstream.demo.check import Comparison
from midstream.demo.run import DemoOutcome
from midstream.errors import (
    CheckpointError,
    InternalError,
    MidstreamError,
    OptionError,
    PlanError,
    QueryError,
    StreamError,
)

PLAIN = {"NO_COLOR": "1", "FORCE_COLOR": None}


def call(*arguments, commands=app, env=PLAIN):
    return CliRunner().invoke(commands, arguments, env=env)


def words(text):
    """The text without colours, which some build machines insist on."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def failing(error, env=PLAIN):
    commands = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @commands.command()
    def fail():
        raise error

    @commands.callback()
    def group():
        """More than one command makes a group of it."""

    return call("fail", commands=commands, env=env)


@pytest.mark.parametrize("how", ["version", "--version"])
def test_the_version_goes_to_the_standard_output(how):
    done = call(how)
    assert (done.exit_code, done.stdout) == (0, f"midstream {midstream.__version__}\n")


@pytest.mark.parametrize("how", ["-h", "--help"])
def test_help_lists_the_commands(how):
    done = call(how)
    assert done.exit_code == 0
    assert "demo" in words(done.stdout)
    assert "version" in words(done.stdout)


def test_help_of_the_demo_names_its_options_but_not_the_hidden_one():
    text = words(call("demo", "--help").stdout)
    options = ("--epochs", "--rows", "--seed", "--output", "--master", "--memory", "--json")
    assert all(option in text for option in options)
    assert "--picture" not in text


def test_the_command_line_starts_without_what_only_a_query_needs():
    heavy = ["duckdb", "numpy", "polars", "pyarrow", "pyspark"]
    check = f"import sys, midstream.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("command", ["demo", "simulate"])
def test_commands_that_need_duckdb_say_so(command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    done = call(command)
    assert done.exit_code == 3
    assert "got an environment without it. Hint: install midstream[" in words(done.stderr)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (QueryError("a"), 1),
        (PlanError("a"), 1),
        (StreamError("a"), 1),
        (InternalError("a"), 1),
        (MidstreamError("a"), 1),
        (OptionError("a"), 3),
        (CheckpointError("a"), 4),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_errors_have_their_exit_codes(error, code):
    assert failing(error).exit_code == code


def test_an_error_is_one_line_on_the_standard_error_however_long():
    error = OptionError("the plan must be short; [this] is not " * 10, got="'x'", hint="shorten it")
    done = failing(error)
    assert done.stdout == ""
    assert done.stderr == f"error: {error}\n"


@pytest.mark.parametrize(("env", "red"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_an_error_is_red_unless_colours_are_unwanted(monkeypatch, env, red):
    monkeypatch.delenv("NO_COLOR", raising=False)
    done = failing(OptionError("a"), env={"FORCE_COLOR": "1", "TERM": "xterm", **env})
    assert ("\x1b[31m" in done.stderr) == red


def test_a_bug_keeps_its_traceback():
    done = failing(ZeroDivisionError("a bug"))
    assert done.exit_code == 1
    assert isinstance(done.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["demo", "--epochs", "0"], ["demo", "--rows", "many"], []]
)
def test_what_is_not_understood_is_a_usage_error(arguments):
    assert call(*arguments).exit_code == 2


def test_the_demo_refuses_a_folder_with_something_in_it(tmp_path):
    (tmp_path / "mine.txt").touch()
    done = call("demo", "--output", str(tmp_path))
    assert done.exit_code == 3
    assert done.stderr.startswith("error: the output must be a new or an empty folder; got ")
    assert done.stderr.count("\n") == 1


def test_the_demo_refuses_a_budget_that_is_no_size():
    done = call("demo", "--memory", "lots")
    assert done.exit_code == 3
    assert done.stderr.startswith("error: memory must be a size such as '512m'; got 'lots'")


@pytest.fixture
def outcome(monkeypatch):
    """Lets a test decide what comes of the demo."""

    def decide(problem):
        def run(demo, view):
            comparison = Comparison(10, 10 if problem is None else 11, problem)
            return DemoOutcome(demo, Path("somewhere"), (), (), "Plan: a b", comparison, {"join": 1.0})

        monkeypatch.setattr("midstream.demo.run.run", run)

    return decide


def test_a_demo_that_ends_well_exits_with_0(outcome):
    outcome(None)
    done = call("demo")
    assert done.exit_code == 0
    assert "10 results, equal to DuckDB's batch join" in done.stdout


def test_wrong_results_exit_with_1_and_say_what_differs(outcome):
    outcome("results: 11 rows are wanted, 10 were got")
    done = call("demo")
    assert done.exit_code == 1
    assert "10 results, not equal to DuckDB's batch join, which has 11" in done.stdout
    assert "11 rows are wanted" in done.stdout


@pytest.mark.parametrize("problem", [None, "one is missing"])
def test_json_is_all_that_there_is_on_the_standard_output(outcome, problem):
    outcome(problem)
    done = call("demo", "--json", "--seed", "5")
    summary = json.loads(done.stdout)
    assert (summary["version"], summary["seed"], summary["problem"]) == (1, 5, problem)
    assert done.exit_code == (0 if problem is None else 1)
