"""Checks the architecture of src/midstream: who may import whom, and what the core may not touch.

The core is pure: same input, same output, whoever runs it and whenever. So it may not reach for
files, clocks, chance, threads or Spark; the shell around it does. The tables below are the rules;
the code after them only reads the source against the tables.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = "midstream"

# From low to high: each may import those before it.
CORE = (
    "errors",
    "values",
    "query",
    "plan",
    "state",
    "engine",
    "migration",
    "adapt",
    "memory",
    "aggregate",
    "sites",
    "protocol",
    "replace",
)

# All parts from low to high; those on one level do not know each other. The same order is drawn in
# docs/architecture.md. "__init__" is the façade, `import midstream`, whose names the outer parts use as any
# user would.
LEVELS: tuple[tuple[str, ...], ...] = (
    *((part,) for part in CORE),
    ("storage",),
    ("runtime",),
    ("inline", "spark"),
    ("__init__",),
    ("testing",),
    ("demo",),
    ("cli",),
)

# What of midstream each part may import besides itself.
LAYERS: dict[str, tuple[str, ...]] = {
    part: tuple(lower for level in LEVELS[:height] for lower in level)
    for height, parts in enumerate(LEVELS)
    for part in parts
} | {"__main__": ("cli",)}

# Packages that only these parts may import.
ONLY_IN = {
    "pyspark": {"spark", "demo"},
    "py4j": {"spark", "demo"},
    "duckdb": {"testing", "demo"},
    "hypothesis": {"testing"},
}

# Names, and everything under them, banned everywhere: they run code that arrives as data.
BANNED = {
    "_pickle", "builtins.__import__", "builtins.compile", "builtins.eval", "builtins.exec",
    "cloudpickle", "code", "ctypes", "dill", "importlib.import_module", "joblib", "jsonpickle",
    "marshal", "numpy.load", "os.popen", "os.system", "pandas.read_pickle", "pickle", "pickletools",
    "polars.DataFrame.deserialize", "polars.Expr.deserialize", "polars.LazyFrame.deserialize",
    "pyspark.cloudpickle", "pyspark.serializers", "runpy", "shelve", "yaml",
}  # fmt: skip

# Names, and everything under them, banned in the core: they see or change the world outside.
BANNED_IN_CORE = {
    "asyncio", "builtins.open", "datetime.date.today",
    "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "glob",
    "importlib", "io", "logging", "mmap", "os", "pandas", "pathlib", "random", "secrets", "shutil",
    "socket", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip

# Those of them that a module can reach without importing them by name.
MEMBERS = {name for name in BANNED | BANNED_IN_CORE if "." in name}


class Use(NamedTuple):
    """A dotted name that a module imports or mentions."""

    name: str
    line: int


def uses(tree: ast.Module, package: str) -> Iterator[Use]:
    """Every name a module imports, then every member it reaches through those or the builtins."""
    origin = {name.removeprefix("builtins."): name for name in MEMBERS if "builtins" in name}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                origin[alias.asname or top] = alias.name if alias.asname else top
                yield Use(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                origin[alias.asname or alias.name] = f"{module}.{alias.name}"
                yield Use(f"{module}.{alias.name}", node.lineno)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            head, _, rest = ast.unparse(node).partition(".")
            name = f"{origin.get(head)}.{rest}".rstrip(".")
            if name in MEMBERS:
                yield Use(name, node.lineno)


def under(name: str, banned: set[str]) -> str | None:
    """The banned name that a name is or lies under, if any."""
    parts = name.split(".")
    return next((p for n in range(len(parts)) if (p := ".".join(parts[: n + 1])) in banned), None)


def verdict(name: str, part: str) -> str | None:
    """What is wrong with a part of midstream using a name, and what to do; None if nothing is."""
    if banned := under(name, BANNED):
        return f"{banned} is banned: it runs code from data. Encode with msgspec or Arrow instead"
    if part in CORE and (banned := under(name, BANNED_IN_CORE)):
        return (
            f"the core ({part}) must be pure and not use {banned}. "
            "Take the value as an argument, or move this to the shell"
        )
    top, _, below = name.partition(".")
    if top in ONLY_IN and part not in ONLY_IN[top]:
        homes = " and ".join(sorted(ONLY_IN[top]))
        return f"only {homes} may import {top}, not {part}. Move this there"
    target = below.partition(".")[0]
    target = target if target in LAYERS else "__init__"
    if top == ROOT and target != part and target not in LAYERS[part]:
        shown = ROOT if target == "__init__" else f"{ROOT}.{target}"
        allowed = ", ".join(LAYERS[part]) or "nothing of midstream"
        return f"{part} may import {allowed}, not {shown}. Move what both need to a lower part"
    return None


def check(source: Path) -> list[str]:
    """Every violation under a source folder, as `file:line: what is wrong. What to do`."""
    found = []
    for path in sorted((source / ROOT).rglob("*.py")):
        inside = path.relative_to(source).with_suffix("").parts
        part = inside[1]
        if part not in LAYERS:
            known = ", ".join(LAYERS)
            found.append(f"{path}:1: {part} must be one of {known}. Or give it a row in LAYERS")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        wrong = {
            (use.line, message)
            for use in uses(tree, ".".join(inside[:-1]))
            if (message := verdict(use.name, part))
        }
        found += [f"{path}:{line}: {message}" for line, message in sorted(wrong)]
    return found


if __name__ == "__main__":
    violations = check(Path("src"))
    print("\n".join(violations), end="\n" if violations else "")
    sys.exit(bool(violations))
