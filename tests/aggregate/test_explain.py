"""What ``explain`` says of aggregates."""

from dataclasses import replace

from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.explain import explain
from midstream.testing.aggregate_oracle import aggregation_of
from tests.aggregate.aggregate_run import aggregated_query


def test_groups_windows_and_aggregates_are_explained():
    query = aggregated_query()
    text = explain(query, build_layout(query, default_plan(query)), {})
    assert text.endswith(
        "Aggregates, in a stage after these:\n"
        "  by a.k, windows of 20 seconds, 5 seconds apart, by the time of the latest component\n"
        "  count(*) AS n"
    )
    updating = replace(query, aggregation=replace(aggregation_of(query), is_update_mode=True))
    assert explain(updating, build_layout(query, default_plan(query)), {}) == (
        f"{text}\n  in update mode: a group comes out whenever it changes"
    )
