"""The *metamorphic* promise: the same rows under another plan, in other partitions and epochs."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.storage.memory_store import MemoryStore
from midstream.testing.broken_promise import check_promise, failures_break
from midstream.testing.compare import assert_same_rows
from midstream.testing.promises import Promises
from midstream.testing.workload import Workload, vary


def check_variation(workload: Workload, promises: Promises, rng: random.Random) -> None:
    """Run the accepted rows once more, and compare the results.

    If windows or the definition have changed, or a watermark was set back, results depend on the epochs: then
    only those of the run itself are known.
    """
    expected = promises.expected
    if expected.resets or len({query.windows for query in expected.queries}) > 1:
        return
    if len(promises.definitions.all) > 1:
        return
    accepted = expected.accepted.tables(workload.query)
    asked = replace(workload.query, windows=expected.queries[0].windows)
    other = vary(replace(workload, query=asked), accepted, rng)
    query = InlineJoin(other.query, other.plan, settings=other.settings, store=MemoryStore())
    tables = [query.run_epoch(epoch) for epoch in other.epochs]
    late = sum(mark.late for mark in query.manifest.streams.values())
    check_promise("metamorphic", late == 0, f"{late} rows are late although they come in order")
    with failures_break("metamorphic"):
        if (aggregates := promises.definitions.now.aggregates) is not None:
            aggregates.check_variation(tables, query.manifest.emitted)
            return
        want = pa.concat_tables(expected.tables["results"])
        assert_same_rows(pa.concat_tables(tables), want, f"results under {other}")
