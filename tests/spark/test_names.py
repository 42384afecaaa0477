"""Names that somebody chose badly or with intent: they work from end to end, or are clearly refused."""

import json
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import CheckpointError, Join, OptionError, QueryError
from midstream.testing.random_streams import SCHEMA, START
from tests.spark.runner import Runner

pytestmark = pytest.mark.spark

ODD = (
    "../x",
    "a/b",
    "..\\x",
    "nul\0x",
    "<img src=x onerror=alert(1)>",
    "x" * 2000,
    "naïve ☃",
    'it\'s "so"',
    "`tick`",
    "x; drop table y",
    "a.b",
    "*",
    "^.*$",
    "#time",
    "#hash",
    "a#k0",
    "ref a",
    "hash",
    " ",
    "new\nline",
    "{{7*7}}",
    "%s",
)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _tables(epoch: int) -> dict[str, pa.Table]:
    """Rows with a column of each odd name; one row is late, in its second epoch."""
    times = [START + epoch * 1_000_000, START if epoch == 0 else START - 10**9, None]
    columns = {"t": pa.array(times).cast(SCHEMA.field("t").type), "k": pa.array([1, 2, 3])}
    columns |= {name: pa.array([f"{name[:9]} {row}".lower() for row in range(3)]) for name in ODD}
    return {stream: pa.table(columns) for stream in "ab"}


def test_columns_of_any_name_are_joined_selected_and_kept(spark, feed, tmp_path):
    feed.add(_tables(0), _tables(1))
    runner = Runner(tmp_path / "run")
    join = Join(spark).stream("a", feed.df("a"), time="t").stream("b", feed.df("b"), time="t")
    for name in ODD:
        join = join.on(
            f"a.{_quoted(name)} = b.{_quoted(name)}", f"lower(a.{_quoted(name)}) <= b.{_quoted(name)}"
        )
    items = [f"a.{_quoted(name)} AS {_quoted(name)}" for name in ODD]
    join = join.within("1 minute").select(*items, "b.*")
    query = runner.run(join, lateRows=tmp_path / "run" / "late")
    json.dumps(query.lastProgress)
    query.explain()
    rows = runner.results().to_pylist()
    # The first row of each epoch meets both of the other stream; the second is late in its second epoch.
    assert sorted(row["b_k"] for row in rows) == [1, 1, 1, 1, 2]
    for row in rows:
        assert [row[name] for name in ODD] == [f"{name[:9]} {row['b_k'] - 1}".lower() for name in ODD]
        assert [row[f"b_{name}"] for name in ODD] == [row[name] for name in ODD]
    assert spark.read.parquet(str(runner.out)).count() == 5
    late = pq.read_table(tmp_path / "run" / "late", partitioning=None)["row"].to_pylist()
    assert len(late) == 6
    assert all(set(json.loads(row)) == {"t", "k", *ODD} for row in late)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "run"]


@pytest.fixture
def frames(spark, feed):
    feed.add({name: table.select(["t", "k"]) for name, table in _tables(0).items()})
    return {name: feed.df(name) for name in "ab"}


@pytest.mark.parametrize(
    "name", [*(n for n in ODD if not n.isidentifier() and n != "x" * 2000), "", "1a", None]
)
def test_a_stream_must_be_called_by_a_word(spark, frames, name):
    with pytest.raises(QueryError, match="the name of a stream must be a word"):
        Join(spark).stream(name, frames["a"], time="t")


def test_streams_may_have_long_names_words_of_sql_and_letters_of_any_language(spark, frames):
    names = ("x" * 2000, "select", "naïve")
    join = Join(spark)
    for name in names:
        join = join.stream(name, frames["a"], time="t")
    join = join.on(*(f"`{names[0]}`.k = `{name}`.k" for name in names[1:])).within("1 minute")
    rows: list[int] = []
    query = (
        join.writeStream.foreachBatch(lambda df, _: rows.append(df.count()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert rows == [2]


def _pair(spark, frames):
    join = Join(spark).stream("a", frames["a"], time="t").stream("b", frames["b"], time="t")
    return join.on("a.k = b.k").within("1 minute").select("a.k")


def test_queries_may_have_any_name_but_views_only_that_of_a_view(spark, frames):
    writer = _pair(spark, frames).writeStream.foreachBatch(lambda df, _: None).trigger(availableNow=True)
    name = "".join(ODD).replace("x" * 2000, "x")
    query = writer.queryName(name).start()
    query.awaitTermination()
    assert (query.name, query.lastProgress["name"]) == (name, name)
    for odd in (*(n for n in ODD if not n.isidentifier()), "1a", "naïve", "a.b"):
        memory = _pair(spark, frames).writeStream.format("memory").queryName(odd if odd.strip() else "?")
        with pytest.raises(OptionError, match="the memory sink must have a name that a view can have"):
            memory.start()
    for nothing in ("", " ", None, 7):
        with pytest.raises(OptionError, match="the name of a query must be text"):
            _pair(spark, frames).writeStream.queryName(nothing)


def test_folders_of_any_name_work_and_nothing_is_written_elsewhere(spark, frames, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    odd = 'it\'s "so"; `drop` <img onerror=x> %2e%2e%2f naïve ☃ #$HOME~:a,b\nline'
    folder = tmp_path / "above" / ".." / odd
    runner = Runner(folder)
    runner.run(_pair(spark, frames), lateRows=folder / "late")
    runner.run(_pair(spark, frames), lateRows=folder / "late")
    assert Runner(tmp_path / odd).results().num_rows == 2
    rows: list[int] = []
    each = _pair(spark, frames).writeStream.foreachBatch(lambda df, _: rows.append(df.count()))
    each.option("checkpointLocation", folder / "each").trigger(availableNow=True).start().awaitTermination()
    assert rows == [2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "in", odd]
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("option", ["path", "checkpointLocation", "lateRows"])
@pytest.mark.parametrize(
    "name", ["..\\x", "nul\0x", "a*", "a?", "[a]", "{a}", "file://../x", "file://host/x", "", " "]
)
def test_folders_that_spark_would_read_otherwise_are_refused(spark, frames, option, name):
    with pytest.raises(OptionError, match=f"{option} must"):
        _pair(spark, frames).writeStream.option(option, name)


def test_a_link_inside_a_checkpoint_is_refused(spark, frames, tmp_path):
    for name in ("spark", "results", "slices", "leases"):
        elsewhere, checkpoint = tmp_path / name / "elsewhere", tmp_path / name / "checkpoint"
        elsewhere.mkdir(parents=True)
        checkpoint.mkdir()
        (checkpoint / name).symlink_to(elsewhere)
        writer = _pair(spark, frames).writeStream.foreachBatch(lambda df, _: None)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        with pytest.raises(CheckpointError, match=r"plain files and folders|a folder with other things"):
            writer.start().awaitTermination()
        assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("sink", ["foreachBatch", "parquet"])
def test_what_is_in_a_checkpoint_is_the_owners_alone(spark, feed, tmp_path, sink):
    feed.add(_tables(0), _tables(1))
    frames = {name: feed.df(name).select("t", "k") for name in "ab"}
    # A folder that was there before keeps the mode that it was given.
    checkpoint = tmp_path / "open"
    checkpoint.mkdir(mode=0o755)
    writer = _pair(spark, frames).writeStream.option("checkpointLocation", checkpoint)
    if sink == "parquet":
        writer = (
            writer.format("parquet").option("path", tmp_path / "out").option("lateRows", tmp_path / "late")
        )
    else:
        writer = writer.foreachBatch(lambda df, _: None)
    writer.trigger(availableNow=True).start().awaitTermination()
    ours = [path for path in checkpoint.rglob("*") if "spark" not in path.relative_to(checkpoint).parts[:1]]
    assert {path.name for path in ours} >= {"slices", "manifests", "leases"} | (
        {"results"} if sink != "parquet" else set()
    )
    assert {_mode(path) for path in ours if path.is_dir()} == {0o700}
    assert {_mode(path) for path in ours if path.is_file()} == {0o600}
    # Spark's files have its own modes, in a folder that nobody else may enter.
    assert _mode(checkpoint / "spark") == 0o700
    if sink == "parquet":
        # Results are for readers: the umask says for which.
        plain = tmp_path / "plain"
        plain.touch()
        assert {_mode(path) for path in (tmp_path / "out").glob("*.parquet")} == {_mode(plain)}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
