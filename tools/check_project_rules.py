"""Checks the project rules that no other tool knows.

Modules are short and say what they are for; no file names a package registry or a machine's paths; tests are
where the package is that they test, and nothing is imported from a ``conftest`` or from another test.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

MAX_LINES = 400

# The brackets keep this file from matching itself.
NOWHERE = {
    "a package registry": re.compile(
        r"py[p]i\.(org|python\.org)|python[h]osted\.org|ana[c]onda\.(org|com)|n[p]mjs\.(org|com)"
        r"|repo1?\.ma[v]en|crates[.]io|g[h]cr\.io|do[c]ker\.io|qua[y]\.io"
    ),
    "a machine's path": re.compile(r"(?<![\w.~$)}\]-])/(?:wor[k]/|roo[t]/|hom[e]/[\w.-]|User[s]/[\w.-])"),
}

OTHER_TESTS = {"docs", "golden", "property", "tools"}
"""Folders of tests that mirror no package: of pages, of old checkpoints, of the whole, and of tools."""


def project_files() -> list[Path]:
    """The files git tracks or is about to; without git, as in an unpacked archive, all visible."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    git = subprocess.run(listing, check=False, capture_output=True, text=True)
    paths = map(Path, git.stdout.split("\0")) if git.returncode == 0 else Path().rglob("[!.]*")
    return [
        path
        for path in paths
        if path.is_file() and (git.returncode == 0 or not path.parts[0].startswith("."))
    ]


def check(files: Iterable[Path], source: Path, tests: Path) -> list[str]:
    """Every violation in these files, as `file:line: what is wrong. What to do`."""
    found = []
    for path in sorted(files):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or another binary file
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            found += [
                f"{path}:{number}: names {what}, {match[0]!r}. Say it without"
                for what, pattern in NOWHERE.items()
                if (match := pattern.search(line))
            ]
        if path.suffix == ".py" and path.is_relative_to(source):
            if len(lines) > MAX_LINES:
                found.append(f"{path}:{MAX_LINES}: {len(lines)} lines, over {MAX_LINES}. Split it")
            if not ast.get_docstring(ast.parse(text, str(path))):
                found.append(f"{path}:1: no module docstring. Say what the module is for")
        if path.suffix == ".py" and path.is_relative_to(tests):
            found += _check_test_module(path, text, tests, source / "midstream")
    return found


def _check_test_module(path: Path, text: str, tests: Path, package: Path) -> list[str]:
    found = []
    folder, *below = path.relative_to(tests).parts
    if below and folder not in OTHER_TESTS and not (package / folder).is_dir():
        found.append(f"{path}:1: {package} has no {folder}. Move it to where what it tests is")
    for node in ast.walk(ast.parse(text, str(path))):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [name.name for name in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *names]
        if any(name.endswith("conftest") for name in names):
            found.append(f"{path}:{node.lineno}: imports from a conftest. Ask for fixtures by their names")
        if any(re.search(r"^tests\.(.*\.)?test_|^test_", name) for name in names):
            found.append(
                f"{path}:{node.lineno}: imports from a test. Move what is shared to a module beside it"
            )
    return found


if __name__ == "__main__":
    violations = check(project_files(), Path("src"), Path("tests"))
    print("\n".join(violations), end="\n" if violations else "")
    sys.exit(bool(violations))
