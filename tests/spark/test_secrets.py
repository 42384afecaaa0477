"""What was told to a query or read by it in confidence is in nothing that it writes for people to read.

Canaries are strings that nobody would write by chance. They are values of rows, above all of rows that make
something fail, of settings, and of the environment. Then everything that Midstream says is searched. Slices,
results and late rows are not: they hold the user's rows, and their files are the owner's.
"""

import json
import logging
import traceback
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from midstream import Join, MidstreamError
from midstream.cli.main import app
from midstream.testing.random_streams import SCHEMA, START
from tests.spark.feed import schema_of
from tests.spark.runner import Runner

pytestmark = pytest.mark.spark

KEY, VALUE, CONF, ENVIRONMENT, ADDRESS = (
    f"canary-{word}-7f3a" for word in ("key", "value", "conf", "env", "url")
)
CANARIES = (KEY, VALUE, CONF, ENVIRONMENT, ADDRESS)


def _rows(epoch: int, *, late: bool = False) -> pa.Table:
    times = [START + epoch * 10_000_000, None, START - 10**9 if late else START + epoch * 10_000_000]
    return pa.table(
        [[1, 2, 3], pa.array(times).cast(SCHEMA.field("t").type), [1, 1, None], [KEY, VALUE, KEY], [0, 0, 0]],
        schema=SCHEMA,
    )


@pytest.fixture
def said(caplog, capfd, monkeypatch):
    """Everything that was said: the log at its most talkative, standard output, and what is added."""
    caplog.set_level(logging.DEBUG, logger="midstream")
    monkeypatch.setenv("MIDSTREAM_TEST_PASSWORD", ENVIRONMENT)
    texts: list[str] = []
    yield texts
    printed = capfd.readouterr()
    texts += [
        record.getMessage() + str(record.__dict__) for record in caplog.records if record.name == "midstream"
    ]
    texts += [printed.out, printed.err]
    assert len("".join(texts)) > 100
    for canary in CANARIES:
        assert [text for text in texts if canary in text] == []


@pytest.fixture
def join(spark, feed):
    spark.conf.set("spark.midstream.test.password", CONF)
    feed.add(*({name: _rows(epoch, late=epoch == 1) for name in "ab"} for epoch in range(2)))
    join = Join(spark)
    for name in "ab":
        folder = str(feed.root / name)
        reader = spark.readStream.schema(schema_of(feed.root / name)).option("maxFilesPerTrigger", 1)
        frame = reader.option("kafka.sasl.jaas.config", f'password="{CONF}"').parquet(folder)
        join = join.stream(name, frame, time="t")
    yield join.on("a.k2 = b.k2", "a.v < b.v + 1").within("1 minute")
    spark.conf.unset("spark.midstream.test.password")


def _all_of(query) -> list[str]:
    return [
        json.dumps(query.recentProgress),
        json.dumps(query.lastProgress),
        query.explanation(),
        repr(query),
    ]


def _look_at(checkpoint: Path) -> list[str]:
    """Every file of a checkpoint but for the rows in it, and what the commands say of it."""
    files = [p for p in checkpoint.rglob("*") if p.is_file() and p.suffix not in (".arrow", ".parquet")]
    assert any(path.parent.name == "manifests" for path in files)
    texts = [path.read_text(errors="replace") for path in files if path.parent.name != "_staged"]
    for command in (["fsck"], ["fsck", "--json"], ["gc"]):
        done = CliRunner().invoke(app, [command[0], str(checkpoint), *command[1:]])
        texts += [done.output, done.stderr]
    return texts


def test_a_query_that_succeeds_tells_no_secret(join, runner, said):
    query = runner.run(join, lateRows=runner.out.with_name("late"))
    assert query.recentProgress[-1]["numLateRows"] == 4
    query.explain()
    said += [*_all_of(query), *_look_at(runner.checkpoint)]


def test_values_are_in_the_names_of_folders_that_partition_by_makes(join, runner, said):
    writer = join.writeStream.format("parquet").option("path", runner.out).partitionBy("a_k2")
    query = writer.option("checkpointLocation", runner.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    folder, texts = f"a_k2={KEY}", [*_all_of(query), *_look_at(runner.checkpoint)]
    assert any(folder in text for text in texts)
    said += [text.replace(folder, "") for text in texts]


def test_a_query_whose_slices_are_damaged_tells_no_secret(join, runner, feed, said):
    runner.run(join)
    for path in (runner.checkpoint / "slices").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    feed.add({name: _rows(2) for name in "ab"})
    query = runner.start(join)
    with pytest.raises(MidstreamError) as failure:
        query.awaitTermination()
    said += [str(failure.value), *traceback.format_exception(failure.value), str(query.exception())]
    said += [*_all_of(query), *_look_at(runner.checkpoint)]


def test_a_query_whose_function_fails_tells_no_secret(join, tmp_path, said):
    def fail(rows, batch):
        if batch == 1:
            rows.collect()
            raise RuntimeError("the function fails")

    writer = join.writeStream.foreachBatch(fail).option("checkpointLocation", tmp_path / "checkpoint")
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="the function fails"):
        query.awaitTermination()
    said += [str(query.exception()), *_all_of(query), *_look_at(tmp_path / "checkpoint")]


def test_a_query_that_is_refused_tells_no_secret(join, tmp_path, said):
    runner = Runner(tmp_path)
    runner.run(join.select("a.id"))
    writer = join.writeStream
    for attempt in (
        lambda: runner.start(join),
        lambda: runner.start(join.select("a.id"), groups=7),
        lambda: writer.option("kafka.password", CONF),
        lambda: writer.option("path", f"s3://user:{ADDRESS}@bucket/out"),
        lambda: writer.option("checkpointLocation", f"s3://user:{ADDRESS}@bucket/checkpoint"),
        lambda: writer.option("lateRows", f"abfs://{ADDRESS}@host/late"),
    ):
        with pytest.raises(MidstreamError) as refusal:
            attempt()
        said += [str(refusal.value), *traceback.format_exception(refusal.value)]
    said += _look_at(runner.checkpoint)
