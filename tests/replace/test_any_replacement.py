"""Any definition replaced by any other, at any time, in any way: each has the results of its time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from midstream.errors import QueryError
from midstream.migration.strategies import WITHOUT_HISTORY
from midstream.query.query import Query
from tests.replace.replacement_cases import ReplacementCase, replacement_cases
from tests.replace.replacement_run import ReplacementRun


def run_case(drawn: ReplacementCase) -> ReplacementRun:
    """Run it, and check what has come out after each epoch."""
    run = ReplacementRun(drawn.old, drawn.old_plan, drawn.case.settings)
    aggregations = [query.aggregation for query in (drawn.old, drawn.new)]
    # Of results it is known which epoch brings them. Windows in append mode are still to come.
    is_joined = aggregations == [None, None]
    for number, epoch in enumerate(drawn.case.epochs):
        stop = drawn.stops[number]
        if stop is not None and number:
            run.restart_with(new=stop)
        if number == drawn.epoch:
            try:
                run.replace(drawn.new, drawn.strategy, drawn.new_plan, drawn.path)
            except QueryError as error:
                event(f"refused: {error.must[:40]}")
                run.replace(drawn.new, WITHOUT_HISTORY, drawn.new_plan, drawn.path)
        run.process(epoch, drawn.paces[number])
        if is_joined:
            run.check_files()
        elif all(each is None or each.is_update_mode for each in aggregations):
            run.check()
    if is_joined:
        run.check_each_epoch()
    event("ended" if run.has_ended else "not ended")
    event("live" if run.live_since is not None else "not live")
    return run


@given(st.data())
def test_results_are_those_of_each_definition_at_its_time(data):
    run_case(data.draw(replacement_cases()))


@given(st.data())
def test_restarts_with_either_definition_change_no_result(data):
    run_case(data.draw(replacement_cases(with_stops=True)))


@given(st.data())
def test_windows_are_those_of_each_definition(data):
    run_case(data.draw(replacement_cases(aggregates=True, with_stops=True))).finish()


@given(st.data())
def test_in_update_mode_the_last_update_of_a_window_is_that_of_its_definition(data):
    drawn = data.draw(replacement_cases(aggregates=True, with_stops=True))
    run_case(replace(drawn, old=_updating(drawn.old), new=_updating(drawn.new)))


def _updating(query: Query) -> Query:
    if query.aggregation is None:
        return query
    return replace(query, aggregation=replace(query.aggregation, is_update_mode=True))
