"""Any query, any plans, any epochs, any migrations at any time: the results are those of DuckDB."""

from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.testing.hypothesis_strategies import cases
from tests.migration.migration_schedules import check_migrations, migration_schedules


@given(st.data())
def test_migrations_change_no_result_and_no_count(data):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1500))
    check_migrations(case, data.draw(migration_schedules(case)))


@given(st.data())
def test_migrations_change_no_result_if_the_query_is_restarted_meanwhile(data):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1500))
    check_migrations(case, data.draw(migration_schedules(case, with_stops=True)))


@settings(max_examples=20)
@given(st.data())
def test_migrations_of_six_streams_change_no_result(data):
    case = data.draw(cases(max_epochs=5, max_results=1000).filter(lambda case: len(case.query.names) == 6))
    check_migrations(case, data.draw(migration_schedules(case, with_stops=True)))
