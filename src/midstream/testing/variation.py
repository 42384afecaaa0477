"""The *metamorphic* promise: the same rows under another plan, in other partitions and epochs."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.storage.memory import MemoryStore
from midstream.testing.compare import assert_same_rows
from midstream.testing.expected import Expected
from midstream.testing.promises import BrokenPromiseError, hold
from midstream.testing.workload import Workload, vary


def check_variation(workload: Workload, expected: Expected, chance: random.Random) -> None:
    """Run the accepted rows once more, and compare the results.

    If windows have changed, or a watermark was set back, results depend on the epochs: then only those of the
    run itself are known.
    """
    if expected.resets or len({query.windows for query in expected.queries}) > 1:
        return
    accepted = expected.accepted.tables(workload.query)
    asked = replace(workload.query, windows=expected.queries[0].windows)
    other = vary(replace(workload, query=asked), accepted, chance)
    query = InlineJoin(other.query, other.plan, settings=other.settings, store=MemoryStore())
    got = pa.concat_tables([query.run_epoch(epoch) for epoch in other.epochs])
    late = sum(mark.late for mark in query.manifest.streams.values())
    hold("metamorphic", late == 0, f"{late} rows are late although they come in order")
    want = pa.concat_tables(expected.tables["results"])
    try:
        assert_same_rows(got, want, f"results under {other}")
    except AssertionError as error:
        raise BrokenPromiseError("metamorphic", str(error)) from error
