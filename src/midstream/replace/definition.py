"""Reading a query back from its definition in a manifest.

A replacement has two definitions, and a query is started again with one of them. The other one is read
back: over the streams that the given one has, as rows come from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from midstream.aggregate.functions import FUNCTIONS
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import Window
from midstream.errors import CheckpointError, QueryError
from midstream.protocol.query_terms import read_columns, read_windows, split_output
from midstream.protocol.settings import Settings, definition_of
from midstream.query.aggregation import Aggregate, Aggregation, AggregationWindows
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.sql import split_name
from midstream.query.stream import ColumnRef, Stream
from midstream.query.types import show_type
from midstream.values import Micros, duration

_NAMES = re.compile(r"[A-Za-z_]\w*(?:\.(?:[A-Za-z_]\w*|`(?:[^`]|``)+`))+")
"""A column of a stream, as a definition has it."""
_EQUALITY = re.compile(f"{_NAMES.pattern} = {_NAMES.pattern}")
"""An equality; other conditions are described in SQL already."""
_START = "start the query with the other one of the two joins, until the replacement has ended"


def read_query(definition: Mapping[str, Any], given: Query, settings: Settings) -> Query:
    """The query of a definition, over the streams of the one that is given."""
    try:
        query = _read(definition, given)
    except (QueryError, KeyError, ValueError, StopIteration) as error:
        raise _unreadable(error) from None
    read = definition_of(query, settings)
    for part in ("order", "timeZone", "on", "within", "select", "aggregation"):
        if read[part] != definition[part]:
            raise _unreadable(f"{read[part]!r} instead of {definition[part]!r}")
    return query


def _read(definition: Mapping[str, Any], given: Query) -> Query:
    streams = [_stream(name, definition["streams"][name], given) for name in definition["order"]]
    windows = read_windows(definition["within"])
    aggregation = definition["aggregation"]
    query = build_query(
        streams,
        [_quoted_names(text) if _EQUALITY.fullmatch(text) else text for text in definition["on"]],
        pairs={(a, b): width for a, b, width in windows.widths},
        select=[_requoted(text) for text in definition["select"]] if aggregation is None else (),
        cross=True,
        zone=definition["timeZone"],
        aggregation=None if aggregation is None else _aggregation(aggregation, streams, given),
    )
    by_name = query.by_name
    kept = tuple(
        replace(query.outputs[0], name=name, ref=ref, type=by_name[ref.stream].type_of(ref))
        for ref, name in read_columns(definition["keeps"])
    )
    return replace(query, kept=kept)


def _stream(name: str, described: Mapping[str, Any], given: Query) -> Stream:
    if name not in given.by_name:
        raise CheckpointError(
            "a query must be started with all streams of a replacement that has not ended",
            got=f"no stream {name}",
            hint=_START,
        )
    schema = given.by_name[name].schema
    changed = [
        field.name
        for field in schema
        if described["columns"].get(field.name) not in (None, show_type(field.type), str(field.type))
    ]
    if changed:
        must = "columns must keep their types until a replacement has ended"
        hint = "give the column its old type in the DataFrame"
        raise CheckpointError(must, got=f"another one of {name}.{changed[0]}", hint=hint)
    _, *path = split_name(described["time"])
    lateness = duration(described["lateness"], "lateness")
    return Stream(name, schema, ColumnRef(name, tuple(path)), lateness)


def _aggregation(described: Mapping[str, Any], streams: Sequence[Stream], given: Query) -> Aggregation:
    known = {} if given.aggregation is None else {_text(each): each for each in given.aggregation.aggregates}
    window = described["window"]
    aggregates: list[Aggregate] = []
    # Those of users are classes, which no manifest has: the given query has to know them.
    plain = [text for text in described["aggregates"] if text not in known]
    for text in plain:
        if text.partition("(")[0] not in FUNCTIONS:
            raise CheckpointError(
                "a function of a user must be known when a query is started again during a replacement",
                got=text,
                hint=_START,
            )
    groups: list[str | Window] = [_requoted(text) for text in described["by"]]
    length = Micros(window["length"])
    groups.insert(window["position"], Window(_micros(length), None, None, _time_of(window, streams)))
    texts = [_call(text) for text in plain] or ["count(*) AS n"]
    read = read_aggregation(groups, texts, streams)
    by_text = dict(zip(plain, read.aggregates, strict=False)) | known
    aggregates = [by_text[text] for text in described["aggregates"]]
    windows = AggregationWindows(
        length, Micros(window["slide"]), Micros(window["start"]), window["time"], read.windows.type
    )
    return replace(
        read, windows=windows, aggregates=tuple(aggregates), is_update_mode=described["mode"] == "update"
    )


def _time_of(window: Mapping[str, Any], streams: Sequence[Stream]) -> str | None:
    if window["time"] is None:
        return None
    return _quoted_names(str(next(s for s in streams if s.name == window["time"]).time))


def _text(aggregate: Aggregate) -> str:
    return f"{aggregate.text} AS {aggregate.name}"


def _call(text: str) -> str:
    """A described aggregate as a user writes it: ``count distinct(a.x) AS n`` is ``count(DISTINCT a.x)``."""
    call, name = split_output(text)
    function, _, arguments = _quoted_names(call).partition("(")
    if function.endswith(" distinct"):
        function, arguments = function.removesuffix(" distinct"), f"DISTINCT {arguments}"
    return f"{function}({arguments} AS {_quoted(name)}"


def _requoted(text: str) -> str:
    ref, name = split_output(text)
    return f"{_quoted_names(ref)} AS {_quoted(name)}"


def _quoted_names(text: str) -> str:
    """A described text whose names are all in back-quotes: those that are words may be words of SQL."""
    return _NAMES.sub(lambda match: ".".join(map(_quoted, split_name(match.group()))), text)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _micros(micros: int) -> str:
    return f"{micros} microseconds"


def _unreadable(what: object) -> CheckpointError:
    return CheckpointError(
        "the other definition of a replacement must be readable from the checkpoint", got=what, hint=_START
    )
