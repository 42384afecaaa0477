"""Output modes: in append mode a row comes out once, in update mode a group does whenever it changes."""

from __future__ import annotations

from dataclasses import replace

from midstream.errors import OptionError, show_value
from midstream.query.query import Query
from midstream.spark.sink_formats import FOREACH_BATCH, FORMATS, SinkFormat

_UPDATES = {"append": False, "update": True}
"""The modes, and whether what has come out may change."""
_COMPLETE = (
    "in update mode, a function of foreachBatch can keep a table of all groups, by merging what has changed"
)


def reads_as_updates(mode: object) -> bool:
    """Whether a mode is update mode; an error if it is none that Midstream has."""
    updates = _UPDATES.get(mode.lower()) if isinstance(mode, str) else None
    if updates is None:
        raise OptionError(
            "the output mode must be 'append' or 'update'", got=show_value(mode), hint=_COMPLETE
        )
    return updates


def in_update_mode(query: Query, sink: SinkFormat) -> Query:
    """The query with groups that come out whenever they change.

    An error if the query or the sink does not allow that.
    """
    if query.aggregation is None:
        raise OptionError(
            "a query in update mode must have aggregates",
            got="results of a join, which never change once they are out",
            hint="leave the mode out, or aggregate the results with groupBy and agg",
        )
    if not sink.takes_updates:
        able = [name for name, other in FORMATS.items() if other.takes_updates]
        raise OptionError(
            "the sink of a query in update mode must be able to take a group again",
            got=f"the {sink.name} sink",
            hint=f"write .{FOREACH_BATCH}(function) and merge by the columns of groupBy, use "
            f"{' or '.join(able)}, or leave the mode out: each window then comes out once, once complete",
        )
    return replace(query, aggregation=replace(query.aggregation, is_update_mode=True))
