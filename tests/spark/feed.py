"""Streams that are fed from files, one file per epoch."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


class Feed:
    """Streams on disk. Each epoch is one file per stream, and each micro-batch reads one."""

    def __init__(self, spark, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.epochs: list[dict[str, pa.Table]] = []

    def add(self, *epochs: Mapping[str, pa.Table]) -> None:
        for epoch in epochs:
            for name, table in epoch.items():
                folder = self.root / name
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{len(self.epochs):05d}.parquet"
                pq.write_table(table, folder / f".{path.name}")
                # The file source orders files by modification time, which writing would not make distinct.
                os.utime(folder / f".{path.name}", (1_700_000_000 + len(self.epochs),) * 2)
                (folder / f".{path.name}").rename(path)
            self.epochs.append(dict(epoch))

    def df(self, name: str):
        folder = self.root / name
        reader = self.spark.readStream.schema(schema_of(folder)).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))


def schema_of(folder: Path) -> StructType:
    """The schema of the first file of a stream; ``spark.read`` would start a job to find it."""
    fields = pq.read_schema(min(folder.glob("*.parquet")))
    return from_arrow_schema(pa.schema([field.remove_metadata() for field in fields]))


def input_of_batches(feed: Feed, checkpoint: Path) -> list[dict[str, pa.Table]]:
    """The input of each micro-batch, from Spark's own offsets.

    Most have one file of each stream. But a trigger may come between two files of an epoch, and if Spark dies
    between logging a file and logging the micro-batch, that file is in one micro-batch with the next one.
    """
    names = list(feed.epochs[0])
    epochs: list[dict[str, pa.Table]] = []
    read = dict.fromkeys(names, 0)
    notes = (path for path in (checkpoint / "spark" / "offsets").iterdir() if path.name.isdigit())
    for path in sorted(notes, key=lambda p: int(p.name)):
        _version, _about, *offsets = path.read_text().splitlines()
        epoch = {}
        for name, offset in zip(names, offsets, strict=True):
            upto = read[name] if offset == "-" else json.loads(offset)["logOffset"] + 1
            parts = [feed.epochs[number][name] for number in range(read[name], upto)]
            epoch[name] = pa.concat_tables([feed.epochs[0][name].slice(0, 0), *parts])
            read[name] = upto
        epochs.append(epoch)
    return epochs
