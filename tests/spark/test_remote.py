"""A query on Spark whose checkpoint is in an object store.

Hadoop's own client for S3 does not come with PySpark. Here Hadoop takes the bucket for a mounted folder, so
that Spark's half of the checkpoint is on this machine, while Midstream's half goes to the server.
"""

import os

import pytest

from midstream import OptionError
from midstream.storage.fsck import check as fsck
from midstream.storage.remote import store_at
from midstream.testing import Shape, generate
from tests.spark.runner import check, one_key

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=30, late=0.1)


@pytest.fixture
def mounted(spark, bucket, tmp_path, monkeypatch):
    """A bucket that Hadoop finds in a folder, and Midstream, in the workers too, on the server."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    hadoop.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    hadoop.set(f"fs.viewfs.mounttable.{bucket}.link./checkpoint", f"file://{tmp_path}/theirs")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    (tmp_path / "theirs").mkdir()
    return f"s3://{bucket}/checkpoint"


def test_a_query_stops_and_goes_on_with_its_state_in_an_object_store(spark, feed, runner, mounted):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=4, seed=7)
    runner.checkpoint = mounted
    feed.add(*epochs[:2])
    runner.run(one_key(spark, feed))
    feed.add(*epochs[2:])
    query = runner.run(one_key(spark, feed))
    assert [p["batchId"] for p in query.recentProgress] == [2, 3]
    assert check(one_key(spark, feed).query(), epochs, runner.results()).num_rows > 0
    findings = fsck(store_at(mounted, cached=False))
    assert findings.slices > 0
    assert not findings.problems


def test_other_sinks_need_a_folder(spark, feed, mounted):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=1, seed=7))
    writer = one_key(spark, feed).writeStream.foreachBatch(lambda rows, epoch: None)
    with pytest.raises(OptionError, match="with the foreachBatch sink must be a folder"):
        writer.option("checkpointLocation", mounted).start()
