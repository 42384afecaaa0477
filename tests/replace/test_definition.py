"""A definition is read back from the checkpoint as it was."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.errors import CheckpointError
from midstream.protocol.settings import Settings, definition_of
from midstream.query.aggregation import Aggregation
from midstream.query.build import build_query
from midstream.query.stream import ColumnRef, Stream
from midstream.query.types import TIMESTAMP
from midstream.replace.definition import read_query
from midstream.testing.hypothesis_aggregates import aggregated, with_aggregation
from midstream.testing.hypothesis_strategies import cases
from midstream.values import Micros
from tests.aggregate.user_classes import median
from tests.helpers import small_query

SETTINGS = Settings(2, 8)


@settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_any_definition_is_read_back_as_it_was(data):
    query = data.draw(cases(max_epochs=1)).query
    query = data.draw(aggregated(query)) if data.draw(st.booleans()) else query
    read = read_query(definition_of(query, SETTINGS), query, SETTINGS)
    assert definition_of(read, SETTINGS) == definition_of(query, SETTINGS)
    assert (read.classes, read.residuals, read.windows) == (query.classes, query.residuals, query.windows)
    assert (read.outputs, read.kept) == (query.outputs, query.kept)
    assert _with_one_type(read.aggregation) == _with_one_type(query.aggregation)


def _with_one_type(aggregation: Aggregation | None) -> Aggregation | None:
    """Aggregates that were drawn without a time may have windows of the type of another one."""
    if aggregation is None or aggregation.windows.stream is not None:
        return aggregation
    return replace(aggregation, windows=replace(aggregation.windows, type=TIMESTAMP))


def test_names_may_be_words_of_sql_and_have_any_characters():
    schema = pa.schema(
        [("select", pa.int64()), ("AS v", pa.int64()), ("o`f", pa.int64()), ("not", TIMESTAMP)]
    )
    streams = [
        Stream(name, schema, ColumnRef(name, ("not",)), Micros(1)) for name in ("as", "update", "union")
    ]
    on = ["`as`.`select` = `update`.`AS v`", "`update`.`o``f` = `union`.`select`"]
    on += ["`as`.`AS v` < `union`.`o``f`", "`as`.`o``f` = `update`.`select` + 1"]
    plain = build_query(
        streams,
        on,
        default_window=Micros(10),
        select=["`as`.`AS v` AS `x AS y`", "`union`.`select` AS `a``b`", "`update`.`not` AS `as`"],
    )
    aggregation = read_aggregation(
        [
            "`as`.`AS v` AS `x AS y`",
            window("10 seconds", time="`update`.`not`"),
            "`union`.`select` AS `a``b`",
        ],
        [
            "count(DISTINCT `update`.`AS v`) AS `n AS m`",
            "count(*) AS `count(*) AS n`",
            "max(`as`.`o``f`) AS d",
        ],
        streams,
    )
    for query in (plain, with_aggregation(plain, aggregation)):
        read = read_query(definition_of(query, SETTINGS), query, SETTINGS)
        assert read == replace(query, outputs=read.outputs, kept=read.kept)
        assert {o.ref for o in read.kept} == {o.ref for o in query.kept}


def test_all_streams_of_a_definition_must_be_given():
    three = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=10)
    two = small_query(["a.k = b.k"], "ab", default_window=10)
    with pytest.raises(CheckpointError, match="no stream c"):
        read_query(definition_of(three, SETTINGS), two, SETTINGS)
    assert read_query(definition_of(two, SETTINGS), three, SETTINGS).names == two.names


def test_what_is_not_a_definition_is_refused():
    query = small_query(["a.k = b.k"], "ab", default_window=10)
    described = definition_of(query, SETTINGS)
    for change in ({"on": ["a.k = "]}, {"select": ["a.zz AS x"]}, {"within": {"a, c": "1 day"}}):
        with pytest.raises(CheckpointError, match="must be readable from the checkpoint"):
            read_query(described | change, query, SETTINGS)


def test_a_function_of_a_user_is_known_to_the_definition_that_has_it():
    plain = small_query(["a.k = b.k"], "ab", default_window=10)
    call = median("a.k").alias("middle")
    # What Spark makes of the text of its type.
    call = replace(call, function=replace(call.function, type=pa.float64()))
    aggregation = read_aggregation([window("10 seconds")], [call, "count(*) AS n"], plain.streams)
    counted = with_aggregation(plain, aggregation)
    described = definition_of(counted, SETTINGS)
    assert read_query(described, counted, SETTINGS).aggregation == aggregation
    with pytest.raises(CheckpointError, match="a function of a user must be known"):
        read_query(described, plain, SETTINGS)
