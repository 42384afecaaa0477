"""Classes of user-defined aggregates, as users write them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream import udaf


class Median:
    """The median, from all values, which it dumps as bytes."""

    def __init__(self, values: np.ndarray | None = None) -> None:
        self.values = np.empty(0) if values is None else values

    def add(self, batch: pa.RecordBatch) -> None:
        self.values = np.append(self.values, batch.column(0).drop_null().cast(pa.float64()).to_numpy())

    def merge(self, other: Median) -> None:
        self.values = np.append(self.values, other.values)

    def result(self) -> float | None:
        return float(np.median(self.values)) if len(self.values) else None

    def dump(self) -> bytes:
        return self.values.tobytes()

    @classmethod
    def load(cls, state: bytes) -> Median:
        return cls(np.frombuffer(state))


class Histogram:
    """How often each text occurs, weighted by a number; it dumps a table."""

    def __init__(self, counts: pa.Table | None = None) -> None:
        schema = pa.schema([("text", pa.string()), ("weight", pa.int64())])
        self.counts = schema.empty_table() if counts is None else counts

    def add(self, batch: pa.RecordBatch) -> None:
        rows = pa.table(
            [c.cast(t) for c, t in zip(batch.columns, self.counts.schema.types, strict=True)],
            names=self.counts.schema.names,
        )
        self._sum(rows.filter(pc.is_valid(rows.column("text"))))

    def merge(self, other: Histogram) -> None:
        self._sum(other.counts)

    def result(self) -> list[tuple[str, int]]:
        return sorted((row["text"], row["weight"]) for row in self.counts.to_pylist())

    def dump(self) -> pa.Table:
        return self.counts

    @classmethod
    def load(cls, state: pa.Table) -> Histogram:
        return cls(state)

    def _sum(self, more: pa.Table) -> None:
        both = pa.concat_tables([self.counts, more]).group_by("text").aggregate([("weight", "sum")])
        self.counts = both.rename_columns(["text", "weight"]).cast(self.counts.schema)


median = udaf("double")(Median)
histogram = udaf("map<string, bigint>")(Histogram)
