"""When a row is of no more use, by the definition that the simulator goes by."""

import pyarrow as pa
import pytest

from midstream.query.build import build_query
from midstream.testing import Shape
from midstream.testing.expected import Expected
from midstream.testing.random_streams import SCHEMA, SECOND, stream
from midstream.testing.reference import AcceptRules
from midstream.values import Micros


def rows(*seconds: int) -> pa.Table:
    times = pa.array([second * SECOND for second in seconds]).cast(SCHEMA.field("t").type)
    columns = {"id": [1] * len(seconds), "t": times, "k": [1] * len(seconds)}
    return pa.table({**columns, "k2": ["x"] * len(seconds), "v": [1] * len(seconds)}, schema=SCHEMA)


@pytest.mark.parametrize(("second", "is_of_no_use"), [(94, True), (95, False), (100, False)])
def test_a_row_may_be_of_no_use_when_it_arrives_although_it_is_not_late(second, is_of_no_use):
    streams = [stream("a", Shape(lateness=Micros(0))), stream("b", Shape(lateness=Micros(20 * SECOND)))]
    query = build_query(streams, ["a.k = b.k"], default_window=Micros(5 * SECOND), select=["a.id"])
    expected = Expected(query, [{"a": rows(100), "b": rows(100)}, {"b": rows(second)}])
    for epoch in range(2):
        expected.begin(epoch, AcceptRules(), query)
    assert expected.progress(1)["b"].accepted == 2
    assert expected.has_expired("b", 1, second * SECOND, 1) == is_of_no_use
    assert not expected.has_expired("b", 0, 100 * SECOND, 1)
