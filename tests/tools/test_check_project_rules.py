from pathlib import Path

import pytest

from tools.check_project_rules import MAX_LINES, check

# Written with a bar in the middle, or this file would break the rule it tests.
NAMED = [
    "see https://py|pi.org/project/x",
    "url = 'https://files.python|hosted.org/packages/x.whl'",
    "image: do|cker.io/library/python",
    "cd /wo|rk/main",
    "open('/ro|ot/data.csv')",
    "log: file:///ho|me/ann/x.log",
    "PATH=/Us|ers/ann/bin",
]


def violations(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return check([path], tmp_path / "src", tmp_path / "tests")


@pytest.mark.parametrize("line", [line.replace("|", "") for line in NAMED])
def test_registries_and_machine_paths_are_found(tmp_path, line):
    (found,) = violations(tmp_path, "notes.md", f"fine\n{line}\n")

    assert found.startswith(f"{tmp_path / 'notes.md'}:2: names a ")


@pytest.mark.parametrize("line", ["src/work/x", "$HOME/work/x", "https://www.apache.org/licenses/"])
def test_other_paths_and_addresses_pass(tmp_path, line):
    assert violations(tmp_path, "notes.md", line) == []


def test_a_long_module_is_found(tmp_path):
    header = '"""Says what it is for."""\n'

    assert violations(tmp_path, "src/a.py", header + "x = 1\n" * (MAX_LINES - 1)) == []
    (found,) = violations(tmp_path, "src/a.py", header + "x = 1\n" * MAX_LINES)
    assert "Split it" in found


def test_a_module_without_docstring_is_found(tmp_path):
    (found,) = violations(tmp_path, "src/a.py", "x = 1\n")

    assert "docstring" in found


def test_length_and_docstring_are_asked_of_sources_only(tmp_path):
    assert violations(tmp_path, "tests/a.py", "x = 1\n" * (MAX_LINES + 1)) == []


def test_binary_files_are_passed_over(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\xff\xfe")

    assert check([path], tmp_path / "src", tmp_path / "tests") == []


@pytest.mark.parametrize("folder", ["state", "property"])
def test_tests_are_where_a_package_is_or_of_the_whole(tmp_path, folder):
    (tmp_path / "src" / "midstream" / "state").mkdir(parents=True)

    assert violations(tmp_path, f"tests/{folder}/test_a.py", "x = 1\n") == []


def test_tests_of_no_package_are_found(tmp_path):
    (found,) = violations(tmp_path, "tests/attic/test_a.py", "x = 1\n")

    assert "has no attic" in found


@pytest.mark.parametrize(
    "line",
    [
        "from tests.spark.conftest import feed",
        "from tests.spark import conftest",
        "import tests.conftest",
        "from conftest import feed",
    ],
)
def test_imports_from_a_conftest_are_found(tmp_path, line):
    (found,) = violations(tmp_path, "tests/test_a.py", f"import re\n{line}\n")

    assert found == f"{tmp_path}/tests/test_a.py:2: imports from a conftest. Ask for fixtures by their names"


@pytest.mark.parametrize(
    "line", ["from tests.spark.test_a import feed", "import tests.test_a", "from tests.spark import test_a"]
)
def test_imports_from_another_test_are_found(tmp_path, line):
    (found,) = violations(tmp_path, "tests/test_b.py", f"import re\n{line}\n")

    assert found.startswith(f"{tmp_path}/tests/test_b.py:2: imports from a test. ")


@pytest.mark.parametrize("line", ["from midstream.testing import Shape", "from tests.testing.seeds import x"])
def test_imports_from_helpers_of_tests_pass(tmp_path, line):
    assert violations(tmp_path, "tests/test_b.py", f"{line}\n") == []
