"""Parquet sources that tasks read themselves: taken when that gives what Spark would give, and only then."""

import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from midstream import Join
from midstream.spark.parquet_source import ParquetSources
from midstream.spark.row_groups import RowGroup, distribute, row_groups
from midstream.testing import Shape, generate
from tests.spark.feed import schema_of
from tests.spark.runner import check

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=40, late=0.1, null_times=0.05, null_keys=0.05)
EPOCHS = generate(dict.fromkeys("ab", SHAPE), epochs=3, seed=11)


@pytest.fixture
def taken(monkeypatch):
    """Whether each epoch was read by the tasks."""
    seen: list[bool] = []
    messages, by_spark = ParquetSources.messages, ParquetSources._by_spark

    def columns(self, *given):
        seen.append(True)
        return messages(self, *given)

    def rows(self, *given):
        seen[-1] = False
        return by_spark(self, *given)

    monkeypatch.setattr(ParquetSources, "messages", columns)
    monkeypatch.setattr(ParquetSources, "_by_spark", rows)
    return seen


def join(spark, frames, key="k"):
    found = Join(spark)
    for name, frame in frames.items():
        found = found.stream(name, frame, time="t", lateness="5 seconds")
    return found.on(f"a.{key} = b.{key}").within("15 seconds")


def frames(feed):
    return {name: feed.df(name) for name in "ab"}


def test_tasks_read_plain_parquet_sources_themselves(spark, feed, runner, taken):
    feed.add(*EPOCHS)
    query = runner.run(join(spark, frames(feed)), lateRows=runner.out.parent / "late")
    assert taken == [True] * 3
    assert check(join(spark, frames(feed)).query(), EPOCHS, runner.results()).num_rows > 0
    given = sum(table.num_rows for epoch in EPOCHS for table in epoch.values())
    assert sum(p["numInputRows"] for p in query.recentProgress) == given


def test_tasks_read_nothing_of_a_stream_without_news(spark, feed, runner, taken):
    feed.add(EPOCHS[0], {"a": EPOCHS[1]["a"]}, {"b": EPOCHS[2]["b"]}, {"b": EPOCHS[1]["b"]})
    asked = join(spark, frames(feed))
    query = runner.run(asked)
    assert taken == [True] * 3
    # Each stream counts its own files, so the last of b goes with nothing of a.
    read = [EPOCHS[0], {"a": EPOCHS[1]["a"], "b": EPOCHS[2]["b"]}, {"b": EPOCHS[1]["b"]}]
    given = [sum(table.num_rows for table in epoch.values()) for epoch in read]
    assert [p["numInputRows"] for p in query.recentProgress] == given
    assert check(asked.query(), read, runner.results()).num_rows > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.where("true"),
        lambda df: df.select("*"),
        lambda df: df.withColumn("v", df["v"]),
    ],
)
def test_a_frame_that_computes_is_sparks_to_read(spark, feed, runner, taken, change):
    feed.add(EPOCHS[0])
    changed = {**frames(feed), "b": change(feed.df("b"))}
    runner.run(join(spark, changed))
    assert taken == []
    assert check(join(spark, changed).query(), EPOCHS[:1], runner.results()).num_rows > 0


def test_options_that_change_how_files_are_read_are_sparks(spark, feed, runner, taken):
    feed.add(EPOCHS[0])
    reader = spark.readStream.schema(feed.df("a").schema).option("maxFilesPerTrigger", 1)
    changed = {**frames(feed), "a": reader.option("mergeSchema", "true").parquet(str(feed.root / "a"))}
    runner.run(join(spark, changed))
    assert taken == []
    assert check(join(spark, changed).query(), EPOCHS[:1], runner.results()).num_rows > 0


def _int96(table, path):
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)


def _narrow(table, path):
    at = table.schema.get_field_index("k")
    pq.write_table(table.set_column(at, "k", pc.cast(table["k"], pa.int32())), path)


def _without_a_column(table, path):
    pq.write_table(table.drop_columns(["v"]), path)


@pytest.mark.parametrize("write", [_int96, _narrow, _without_a_column])
def test_a_file_that_is_not_as_expected_is_sparks_to_read(spark, feed, runner, taken, write):
    feed.root = feed.root / "50% of; or so"
    feed.add(*EPOCHS)
    schema = schema_of(feed.root / "a")
    path = feed.root / "a" / "00001.parquet"
    write(EPOCHS[1]["a"], path)
    os.utime(path, (1_700_000_001,) * 2)
    epochs = list(EPOCHS)
    if write is _without_a_column:
        table = EPOCHS[1]["a"]
        at = table.schema.get_field_index("v")
        nulls = pa.nulls(table.num_rows, table.schema.field("v").type)
        epochs[1] = {**EPOCHS[1], "a": table.set_column(at, "v", nulls)}
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    sources = {"a": reader.parquet(str(feed.root / "a")), "b": feed.df("b")}
    runner.run(join(spark, sources))
    assert taken == [True, False, True]
    check(join(spark, sources).query(), epochs, runner.results())


def test_nested_keys_odd_paths_and_files_of_several_row_groups(spark, feed, runner, taken):
    feed.root = feed.root / "50% of; or so"
    nested = []
    for epoch in EPOCHS:
        tables = {}
        for name, table in epoch.items():
            # A name that begins with a dot, beside the one that it would mean if it were a path.
            columns = [table[column].combine_chunks() for column in ("k", "id")]
            key = pa.StructArray.from_arrays(columns, [".b", "b"])
            tables[name] = table.drop_columns(["k"]).append_column("s", key)
        nested.append(tables)
    feed.add(*nested)
    for path in feed.root.rglob("*.parquet"):
        before = path.stat().st_mtime
        pq.write_table(pq.read_table(path), path, row_group_size=7)
        os.utime(path, (before, before))
    asked = join(spark, frames(feed), key="s.`.b`")
    runner.run(asked)
    assert taken == [True] * 3
    check(asked.query(), nested, runner.results())


def test_columns_that_are_only_in_the_names_of_folders_are_sparks_to_read(spark, feed, runner, taken):
    days = [epoch | {"b": epoch["b"].append_column("day", pa.repeat(7, len(epoch["b"])))} for epoch in EPOCHS]
    feed.add(*days)
    folder = feed.root / "b" / "day=7"
    folder.mkdir()
    for path in sorted((feed.root / "b").glob("*.parquet")):
        at = path.stat().st_mtime
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["day"]), folder / path.name)
        os.utime(folder / path.name, (at, at))
        path.unlink()
    schema = spark.read.parquet(str(feed.root / "b")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    asked = join(spark, {"a": feed.df("a"), "b": reader.parquet(str(feed.root / "b"))})
    runner.run(asked)
    assert taken == [False] * 3
    assert set(runner.results()["b_day"].to_pylist()) == {7}


def test_files_differ_in_which_columns_may_have_nulls(spark, feed, runner, taken):
    whole = [{n: t.filter(pc.is_valid(t["k"])) for n, t in epoch.items()} for epoch in EPOCHS]
    feed.add(*whole)
    path = feed.root / "a" / "00001.parquet"
    table = pq.ParquetFile(path).read()
    fields = [f.with_nullable(f.name != "k") for f in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), path)
    reader = spark.readStream.schema(feed.df("a").schema).option("maxFilesPerTrigger", 3)
    asked = join(spark, {name: reader.parquet(str(feed.root / name)) for name in "ab"})
    runner.run(asked)
    assert taken == [True]
    one = {name: pa.concat_tables([epoch[name] for epoch in whole]) for name in "ab"}
    check(asked.query(), [one], runner.results())


def test_a_file_that_cannot_be_opened_or_has_another_calendar_is_not_read_by_tasks(tmp_path):
    schema = pa.schema([("k", pa.int64())])
    table = schema.empty_table()

    def groups(name):
        return row_groups("a", schema, f"file://{tmp_path}/{name}")

    (tmp_path / "empty").touch()
    assert groups("empty") is None
    assert groups("gone") is None
    pq.write_table(table, tmp_path / "good")
    assert len(groups("good")) == 1
    assert row_groups("a", schema, f"s3a://bucket{tmp_path}/good") is None
    pq.write_table(table.append_column("K", table["k"]), tmp_path / "twice")
    assert groups("twice") is None
    for note, value, read in (("version", "2.4.8", 0), ("version", "4.3.0", 1), ("legacyINT96", "", 0)):
        noted = {f"org.apache.spark.{note}": value}
        pq.write_table(table.replace_schema_metadata(noted), tmp_path / "noted")
        assert (groups("noted") is not None) == read


def test_a_backlog_is_read_by_more_tasks_than_there_are_cores(spark, feed, runner, monkeypatch):
    from midstream.spark import parquet_source

    feed.add(*EPOCHS)
    monkeypatch.setattr(parquet_source, "_MAX_TASK_BYTES", 1000)
    tasks: list[int] = []
    numbers = parquet_source._numbers

    def counted_numbers(context, count):
        tasks.append(count)
        return numbers(context, count)

    monkeypatch.setattr(parquet_source, "_numbers", counted_numbers)
    reader = spark.readStream.schema(feed.df("a").schema).option("maxFilesPerTrigger", 3)
    asked = join(spark, {name: reader.parquet(str(feed.root / name)) for name in "ab"})
    runner.run(asked)
    assert tasks == [6]
    one = {name: pa.concat_tables([epoch[name] for epoch in EPOCHS]) for name in "ab"}
    check(asked.query(), [one], runner.results())


def test_row_groups_are_distributed_evenly_and_always_alike():
    groups = [RowGroup("ab"[i % 2], f"f{i // 3}", i % 3, 100 + 37 * i) for i in range(17)]
    shares = distribute(groups, 4)
    loads = [sum(group.bytes for group in share) for share in shares]
    assert max(loads) - min(loads) <= max(group.bytes for group in groups)
    assert sorted((g.stream, g.path, g.number) for share in shares for g in share) == sorted(
        (g.stream, g.path, g.number) for g in groups
    )
    assert distribute(groups[::-1], 4) == shares
