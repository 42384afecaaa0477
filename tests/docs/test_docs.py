"""The pages say what is true: their code runs and prints what they show, their links lead somewhere.

Every ``python`` block of a page is run, from top to bottom, in one namespace per page. A page finds there
what its reader is told to have:

- ``spark``: a session, local, in UTC;
- ``shop``: the absolute path of a folder of this test's own, which is also the current folder;
- ``orders``, ``payments``, ``shipments``, ``deliveries``: streaming DataFrames over the folders of these
  names in ``shop``, which give one file per micro-batch; what is in them is in ``shop.py``.

What a block prints must stand in a ``text`` block right after it, where ``...`` stands for anything.
"""

import contextlib
import io
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from midstream import errors
from midstream.cli import failures
from midstream.cli.main import app
from midstream.protocol.event import Event
from midstream.protocol.health import HEALTH_CHECKS
from midstream.query.expression import Call, Expression, ExpressionOperator
from midstream.query.predicate import read_predicate
from midstream.query.stream import ColumnRef, Stream
from midstream.query.types import common_type, show_type
from midstream.state.manifest import FORMAT
from midstream.state.upgrade import OLDEST_FORMAT
from midstream.values import Micros
from tests.docs.pages import (
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    code_in,
    links,
    name_of,
    prose,
    rows_of,
    section,
)
from tests.spark.feed import schema_of
from tools.check_imports import LAYERS, LEVELS
from tools.generate_options import GUIDE, options_table, with_options

ARCHITECTURE = ROOT / "docs" / "architecture.md"
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
STREAMS = ("orders", "payments", "shipments", "deliveries")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_runs_and_prints_what_the_page_shows(page, spark, shop, monkeypatch):
    monkeypatch.chdir(shop)
    others = {query.id for query in spark.streams.active}
    names = {"spark": spark, "shop": shop, **{name: _stream(spark, shop / name) for name in STREAMS}}
    try:
        for block in blocks(page):
            if block.language == "python":
                printed = _run(page, block, names)
                where = f"{name_of(page)}, block at line {block.line}"
                assert _matches(printed, block.output or ""), f"{where} prints\n{printed}"
        if page == GUIDE:
            _check_progress(names["query"].lastProgress)
    finally:
        for query in spark.streams.active:
            if query.id not in others:
                query.stop()


def _stream(spark, folder: Path):
    reader = spark.readStream.schema(schema_of(folder)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def _run(page: Path, block: Block, names: dict[str, object]) -> str:
    # Empty lines in front make the line numbers of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, names)  # noqa: S102  # the project's own pages
    return out.getvalue()


def _matches(printed: str, shown: str) -> bool:
    lines = (re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in shown.strip().splitlines())
    got = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch("\n".join(lines), got, re.DOTALL) is not None


def _check_progress(progress: dict[str, object]) -> None:
    """The reference of progress names the fields that there are, and no others."""
    documented = [field for cells in rows_of(section(GUIDE, "progress")) for field in code_in(cells[0])]
    top = {field.partition(".")[0] for field in documented}
    assert top == set(progress)
    for field in top:
        inner = {
            name.partition(".")[2].removeprefix("*.") for name in documented if name.startswith(f"{field}.")
        }
        value = progress[field]
        if inner and isinstance(value, dict):
            wild = any(name.startswith(f"{field}.*") for name in documented)
            values = list(value.values()) if wild else [value]
            assert values, f"{field} must have something to look at"
            assert all(set(one) == inner for one in values), f"{field} has {values}, the guide {inner}"


def test_the_table_of_events_is_complete():
    import_module("midstream.runtime.epoch_reporter")  # all kinds are defined by then
    documented = {
        code_in(kind)[0]: (code_in(severity), set(code_in(fields)))
        for kind, severity, _, fields in rows_of(section(GUIDE, "events"))
    }
    common = {"batchId"}
    assert documented == {
        kind.__struct_config__.tag: ([kind.severity], set(kind.__struct_encode_fields__) - common)
        for kind in _kinds(Event)
    }


def test_the_table_of_health_has_every_check_with_its_threshold():
    documented = [(code_in(kind)[0], threshold) for kind, threshold, _ in rows_of(section(GUIDE, "health"))]
    assert documented == [(str(c.problem.__struct_config__.tag), c.threshold) for c in HEALTH_CHECKS]


def test_the_table_of_commands_has_every_command_and_option():
    documented = {
        code_in(command)[0].split()[1]: set(re.findall(r"--[a-z]+", " ".join((command, does, options))))
        for command, does, options in rows_of(section(GUIDE, "commands"))
    }
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    of_all = {option for parameter in group.params for option in parameter.opts}
    for name, command in group.commands.items():
        options = {
            option
            for parameter in command.params
            if isinstance(parameter, TyperOption) and not parameter.hidden
            for option in parameter.opts
        }
        assert documented[name] - of_all == {option for option in options if option.startswith("--")}, name
    assert set(documented) == set(group.commands)


def test_the_codes_that_commands_exit_with_are_those_of_the_guide():
    documented = {int(code) for code, _ in rows_of(section(GUIDE, "exit codes"))}
    lines = (failures.__doc__ or "").splitlines()
    assert documented == {int(line.split("|")[1]) for line in lines if re.match(r"\| \d", line)}


def _kinds(event: type[Event]) -> list[type[Event]]:
    """The types below one that have none below themselves; those between only group them."""
    return [kind for child in event.__subclasses__() for kind in _kinds(child)] or [event]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in links(page):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link} leads nowhere"
        assert path.is_relative_to(ROOT), f"{link} leads out of the project"
        assert not anchor or anchor in anchors(path), f"{link} leads to a heading that is not there"


def test_what_the_readme_leads_to_is_in_the_source_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    included = {*included, *(f"/{name}" for name in project["project"]["license-files"])}
    for link in links(ROOT / "README.md"):
        file = f"/{link.partition('#')[0]}"
        assert any(file == path or file.startswith(f"{path}/") for path in included), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_targets_of_the_makefile(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [
        line for block in blocks(page) if block.language in ("bash", "sh") for line in block.text.splitlines()
    ]
    for line in (*lines, *code_in(prose(page))):
        if line.startswith("make "):
            assert line.split()[1] in targets, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page):
    figures = [block.text for block in blocks(page) if block.language == "text"]
    in_figures = re.findall(r"\b[a-z_]+/[a-z_]+\.py\b", "\n".join(figures))
    for name in (*code_in(prose(page)), *in_figures):
        assert not re.fullmatch(r"\w+\.py", name), f"{name} must be named with its folder"
        if re.fullmatch(r"[\w/.-]+/[\w.-]+\.(py|md|sh|svg)|[a-z]+/", name) and name.count("/") == 1:
            places = (ROOT, ROOT / "src" / "midstream")
            known = any((place / name).exists() for place in places)
            assert known or name in _FOLDERS_OF_A_QUERY, f"{name} is not there"


_FOLDERS_OF_A_QUERY = {
    "spark/",
    "manifests/",
    "intents/",
    "requests/",
    "slices/",
    "results/",
    "_staged/",
    "leases/",
    "published/",
    "temporary/",
}


def test_the_table_of_options_is_up_to_date():
    page = GUIDE.read_text(encoding="utf-8")
    assert with_options(page) == page, "run .venv/bin/python tools/generate_options.py"
    assert options_table() in page


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="must have <!-- options: begin -->"):
        with_options("# A page\n")


def test_the_list_of_conditions_is_complete_and_all_of_it_works():
    examples = [example for cells in rows_of(section(GUIDE, "conditions")) for example in code_in(cells[1])]
    used: set[str] = set()
    for example in examples:
        equalities, residuals = read_predicate(example, [_sample("a"), _sample("b")], "UTC")
        assert not equalities, f"{example} is an equality"
        for residual in residuals:
            used |= _operators(residual.expression)
    assert used == set(get_args(ExpressionOperator))


def test_conditions_that_the_guide_says_are_refused_are():
    for example in code_in(section(GUIDE, "refused conditions")):
        with pytest.raises(errors.QueryError):
            read_predicate(example, [_sample("a"), _sample("b")], "UTC")


def _sample(name: str) -> Stream:
    fields = {
        "x": pa.int64(),
        "y": pa.int64(),
        "price": pa.decimal128(8, 2),
        "d": pa.float64(),
        "s": pa.string(),
        "ok": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
    }
    return Stream(name, pa.schema(list(fields.items())), ColumnRef(name, ("at",)), Micros(0))


def _operators(expression: Expression) -> set[str]:
    if not isinstance(expression, Call):
        return set()
    return {expression.operator}.union(*(_operators(arg) for arg in expression.args))


def test_the_table_of_key_types_is_what_the_query_does():
    kinds = {
        show_type(kind): kind
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
            *(pa.binary(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
            *(pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(21, 2)),
        )
    }
    for left, right, compared, _ in rows_of(section(GUIDE, "key types")):
        (as_text,) = code_in(compared) or [""]
        for a in code_in(left):
            for b in code_in(right):
                common = common_type((kinds[a], kinds[b]))
                assert common is not None, f"{a} = {b}"
                assert show_type(common) == as_text, f"{a} = {b}"


def test_the_tree_of_errors_is_complete():
    tree = next(b for b in blocks(GUIDE) if "MidstreamError" in b.text and b.language == "text")
    known = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert set(re.findall(r"\b\w+Error\b", tree.text)) - {"ValueError", "AttributeError"} == known


def test_the_guide_says_which_formats_of_checkpoints_open():
    said = re.findall(r"if its format is (\d+) or later; the current one is (\d+)", prose(GUIDE))
    assert said == [(str(OLDEST_FORMAT), str(FORMAT))]


def test_the_architecture_names_every_part():
    parts = [p.name for p in (ROOT / "src" / "midstream").iterdir() if p.is_dir() and p.name != "__pycache__"]
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert [part for part in parts if f"`{part}" not in text] == []


def test_the_order_of_parts_that_is_drawn_is_the_one_that_is_enforced():
    text = section(ARCHITECTURE, "order of parts").replace("midstream", "__init__")
    lines = [line for line in text.splitlines() if not line.startswith("```")]
    drawn = [tuple(word for word in line.split() if word in LAYERS) for line in reversed(lines)]
    assert drawn == list(LEVELS)
