"""The oracle, which is DuckDB, compares as Spark does."""

import pyarrow as pa

from midstream.query.build import build_query
from midstream.testing import assert_same_rows, batch_join, naive_join
from tests.helpers import TIME, make_query, make_stream


def test_the_oracle_checks_residuals_with_the_meaning_of_spark():
    query = make_query("ab", ["a.i = b.i", "a.l % b.l = 1 OR a.n LIKE '50\\\\%'"], select=["a.l", "b.l"])

    def table(*lines):
        columns = {n: [line.get(n) for line in lines] for n in query.streams[0].schema.names}
        return pa.table(columns, schema=query.streams[0].schema)

    a = table({"t": 0, "i": 1, "l": 7, "n": "500"}, {"t": 0, "i": 1, "l": 9, "n": "50%"})
    b = table({"t": 0, "i": 1, "l": 0}, {"t": 0, "i": 1, "l": 3})
    wanted = pa.table({"a_l": [7, 9, 9], "b_l": [3, 0, 3]})
    assert_same_rows(batch_join(query, {"a": a, "b": b}), wanted)


def test_the_oracle_compares_each_pair_in_its_own_type():
    kinds = {"a": pa.int64(), "b": pa.int64(), "c": pa.float64()}
    streams = [make_stream(name, {"t": TIME, "k": kind}) for name, kind in kinds.items()]
    query = build_query(streams, ["a.k = b.k", "b.k = c.k"], select=["a.k"])
    values: dict[str, list[float]] = {"a": [2**53, 2**53 + 1], "b": [2**53 + 1], "c": [float(2**53)]}
    tables = {n: pa.table({"t": pa.array([0] * len(v), TIME), "k": v}) for n, v in values.items()}
    assert batch_join(query, tables).column(0).to_pylist() == [2**53 + 1]
    assert naive_join(query, tables).column(0).to_pylist() == [2**53 + 1]
