"""Reading what is to be aggregated: groups, windows and aggregates, in the words of PySpark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from midstream.aggregate.function import Argument, Function
from midstream.aggregate.functions import ALIASES, FUNCTIONS
from midstream.aggregate.split_call import AggregateCall, split_call
from midstream.aggregate.user_function import UserCall
from midstream.aggregate.window import Window
from midstream.errors import QueryError, show_value
from midstream.query.aggregation import Aggregate, Aggregation, AggregationWindows, Parameter, column_of
from midstream.query.clauses import Output
from midstream.query.query import Query
from midstream.query.sql import dotted_name, parse
from midstream.query.stream import Stream, resolve
from midstream.query.types import LOCAL_TIMESTAMP, TIMESTAMP, canonical_type, show_type
from midstream.values import Micros, duration, show_duration

_WRITE = "write a function of a column and a name, as in 'sum(payments.amount) AS total'"
_ONE_EACH = "write an aggregate for each column"
_COMPUTE = "compute it as a column of the DataFrame of its stream, with withColumn, and use that column"


def read_aggregation(
    groups: Sequence[str | Window], items: Sequence[str | UserCall], streams: Sequence[Stream]
) -> Aggregation:
    """The aggregation of results by groups, one of which is a window."""
    asked = [group for group in groups if isinstance(group, Window)]
    if len(asked) > 1:
        raise QueryError(
            "results must be grouped by one window",
            got=f"{len(asked)} windows",
            hint="leave out all but one of them; for windows of another length start another query",
        )
    if not asked:
        raise QueryError(
            "results must be grouped by one window: without it no group is ever complete, as there may "
            "always be another result of it, and its state would stay for ever",
            got="no window",
            hint="add one, as in groupBy('orders.region', window('10 minutes')); to aggregate all of a "
            "bounded input, write the results to a sink and aggregate them there",
        )
    if not items:
        raise QueryError("agg must have an aggregate", got="none", hint="write agg('count(*) AS n')")
    keys = tuple(_read_key(group, streams) for group in groups if not isinstance(group, Window))
    aggregation = Aggregation(
        keys=keys,
        windows=_read_window(asked[0], streams),
        window_position=list(groups).index(asked[0]),
        aggregates=tuple(_read_aggregate(item, streams) for item in items),
    )
    _check_names(aggregation)
    return aggregation


def check_output_time(query: Query) -> None:
    """Refuse windows by the time of a stream whose rows may be in results however old they are."""
    stream = query.aggregation.windows.stream if query.aggregation is not None else None
    unbounded = [
        other
        for other in query.names
        if stream is not None and other != stream and query.windows.width(stream, other) is None
    ]
    if unbounded:
        raise QueryError(
            f"results must be bounded in time for windows by the time of {stream}",
            got=f"no window between {stream} and {', '.join(unbounded)}",
            hint="add .within('30 minutes'), or leave out time: then the time of the latest component counts",
        )


def _read_key(item: str, streams: Sequence[Stream]) -> Output:
    tree = parse(item, "a column to group by")
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    name = dotted_name(inner)
    if name is None or isinstance(inner, exp.Star):
        got, hint = show_value(item), f"name a column with its stream, as in 'orders.region'; or {_COMPUTE}"
        raise QueryError("results must be grouped by columns and by a window", got=got, hint=hint)
    ref = resolve(streams, name)
    dtype = next(stream for stream in streams if stream.name == ref.stream).type_of(ref)
    if canonical_type(dtype) is None:
        got = f"{ref} of type {show_type(dtype)}"
        raise QueryError("a column to group by must be of a simple type", got=got, hint="use a field of it")
    alias = tree.alias if isinstance(tree, exp.Alias) else "_".join((ref.stream, *ref.path))
    return Output(alias, ref, dtype)


def _read_window(asked: Window, streams: Sequence[Stream]) -> AggregationWindows:
    _check_length(asked, streams)
    length = duration(asked.length, "a window of results")
    slide = length if asked.slide is None else duration(asked.slide, "the distance of windows")
    start = Micros(0) if asked.start is None else duration(asked.start, "the start of windows")
    if not 0 < slide <= length:
        raise QueryError(
            "windows must be longer than nothing, and begin at most their length apart",
            got=f"windows of {show_duration(length)}, {show_duration(slide)} apart",
            hint="write window('10 minutes', '1 minute'): the length first",
        )
    if start >= slide:
        got = f"{show_duration(start)} for windows that are {show_duration(slide)} apart"
        raise QueryError("the start of windows must be less than their distance", got=got)
    stream = None if asked.time is None else _stream_of_time(asked.time, streams)
    timed = streams if stream is None else [stream]
    has_zone = any(each.type_of(each.time).tz is not None for each in timed)
    kind = TIMESTAMP if has_zone else LOCAL_TIMESTAMP
    return AggregationWindows(length, slide, start, None if stream is None else stream.name, kind)


def _check_length(asked: Window, streams: Sequence[Stream]) -> None:
    """Spark's windows begin with the time."""
    length, times = asked.length, [str(stream.time) for stream in streams]
    # What comes first may be an object of Spark's, which refuses to be compared.
    is_time = isinstance(length, str) and length in times
    if is_time or (not _is_duration(length) and _is_duration(asked.slide)):
        time = length if is_time else times[0]
        hint = f"the time comes last, by its name: window('10 minutes', time='{time}')"
        raise QueryError("a window must begin with its length", got=show_value(length), hint=hint)


def _is_duration(value: Any) -> bool:
    try:
        duration(value, "it")
    except QueryError:
        return False
    return True


def _stream_of_time(text: str, streams: Sequence[Stream]) -> Stream:
    name = dotted_name(parse(text, "the time of windows"))
    ref = resolve(streams, name) if name is not None else None
    for stream in streams:
        if stream.time == ref:
            return stream
    raise QueryError(
        "the time of windows must be the event time of a stream",
        got=show_value(text),
        hint=f"the event times are {', '.join(str(stream.time) for stream in streams)}",
    )


def _read_aggregate(item: str | UserCall, streams: Sequence[Stream]) -> Aggregate:
    if isinstance(item, UserCall):
        return _read_user_call(item, streams)
    call = split_call(item, _WRITE)
    name = ALIASES.get(call.function, call.function)
    if call.distinct:
        name = f"{name} distinct"
    if name == "count" and call.arguments in (["*"], ["1"]):
        return Aggregate(call.name, name, (), (), FUNCTIONS[name].result(TIMESTAMP))
    function = FUNCTIONS.get(name)
    if function is None:
        known = ", ".join(sorted([*FUNCTIONS, *ALIASES]))
        hint = f"the functions are {known}; others can be computed from what is written"
        raise QueryError("an aggregate must be a function that Midstream has", got=repr(item), hint=hint)
    if not call.arguments:
        raise QueryError("an aggregate must be applied to a column", got=repr(item), hint=_WRITE)
    column = _read_column(call, function, item, streams)
    parameters = _read_parameters(call, function.arguments, item)
    return Aggregate(call.name, name, (column,), parameters, function.result(column.type))


def _read_user_call(call: UserCall, streams: Sequence[Stream]) -> Aggregate:
    function = call.function
    if call.name is None or not isinstance(function.type, pa.DataType):
        hint = f"write {function.name}(...).alias('a_name')"
        raise QueryError("an aggregate must have one name", got=repr(call), hint=hint)
    columns = tuple(_column_named(text, repr(call), streams) for text in call.columns)
    return Aggregate(call.name, function.name, columns, (), function.type, function.user_class)


def _read_column(call: AggregateCall, function: Function, item: str, streams: Sequence[Stream]) -> Output:
    column = _column_named(call.arguments[0], repr(item), streams)
    if types.is_null(column.type) or not function.accepts(column.type):
        got = f"{column.ref} of type {show_type(column.type)}"
        hint = "cast it, or choose a field of it, in the DataFrame of its stream"
        raise QueryError(f"{call.function} must be of {function.wants}", got=got, hint=hint)
    return column


def _column_named(text: str, item: str, streams: Sequence[Stream]) -> Output:
    name = dotted_name(parse(text, "what is aggregated"))
    if name is None:
        raise QueryError("an aggregate must be applied to a column of a stream", got=item, hint=_COMPUTE)
    ref = resolve(streams, name)
    dtype = next(stream for stream in streams if stream.name == ref.stream).type_of(ref)
    return Output(column_of(ref), ref, dtype)


def _read_parameters(call: AggregateCall, wanted: Sequence[Argument], item: str) -> tuple[Parameter, ...]:
    given = call.arguments[1:]
    if len(given) > len(wanted):
        most = "one argument" if not wanted else f"at most {1 + len(wanted)} arguments"
        raise QueryError(f"{call.function} must have {most}", got=repr(item), hint=_ONE_EACH)
    parameters = []
    for position, argument in enumerate(wanted):
        text = given[position] if position < len(given) else None
        parameters.append(_read_parameter(call, argument, text))
    return tuple(parameters)


def _read_parameter(call: AggregateCall, argument: Argument, text: str | None) -> Parameter:
    try:
        value = argument.default if text is None else int(text) if argument.whole else float(text)
    except ValueError:
        value = None
    if value is None or not argument.least <= value <= argument.most:
        raise QueryError(
            f"the {argument.name} of {call.function} must be a number "
            f"from {argument.least} to {argument.most}",
            got="none" if text is None else repr(text),
            hint="write one aggregate for each" if text is not None and "array" in text.lower() else None,
        )
    return value


def _check_names(aggregation: Aggregation) -> None:
    names = aggregation.schema.names
    for position, name in enumerate(names):
        if name.lower() in (earlier.lower() for earlier in names[:position]):
            hint = "write 'orders.region AS another_name', or 'count(*) AS another_name'"
            raise QueryError("every column must have a name of its own", got=f"{name!r} twice", hint=hint)
