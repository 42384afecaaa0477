"""The test kit: what Midstream is tested with, also for the tests of its users.

- :func:`batch_join` is the oracle: the same query as a batch join by DuckDB.
- :func:`naive_join` and :func:`accept` define the results in plain Python.
- :func:`assert_same_rows` compares results and shows what differs.
- :func:`generate` makes streams with late rows, nulls, duplicates and silent epochs.
- :mod:`midstream.testing.hypothesis_strategies` has Hypothesis strategies of queries, plans and epochs.

It needs the extra ``midstream[testing]``.
"""

from midstream.testing.compare import assert_same_rows
from midstream.testing.oracle import batch_join
from midstream.testing.random_streams import Shape, generate, stream
from midstream.testing.reference import accept, naive_join

__all__ = ["Shape", "accept", "assert_same_rows", "batch_join", "generate", "naive_join", "stream"]
