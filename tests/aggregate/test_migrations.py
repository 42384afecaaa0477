"""While two plans run, results are aggregated where each makes them: only partial aggregates are sent."""

from __future__ import annotations

import pytest

from midstream.aggregate.run_fragment import run_fragment
from midstream.protocol.settings import Settings
from midstream.testing import generate
from tests.aggregate.aggregate_run import SHAPE, AggregateRun, aggregated_query


def test_results_of_two_plans_are_not_sent_before_they_are_aggregated(monkeypatch):
    sent: set[str] = set()
    made: set[int] = set()

    def seen(program, fragment, partition, arrivals, open_slice):
        output = run_fragment(program, fragment, partition, arrivals, open_slice)
        sent.update(rows.kind for rows in output.outgoing)
        if any(rows.kind == "partials" for rows in output.outgoing) and program.migration_step is not None:
            made.add(fragment.id)
        return output

    monkeypatch.setattr("midstream.runtime.partition_task.run_fragment", seen)
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=12, seed=1)
    run = AggregateRun(aggregated_query(), "(a b) c", Settings(2, 8)).process(epochs[:4])
    run.join.migrate("a (b c)", "hybrid", background="off", isolated=False)
    run.process([*epochs[4:], {}])
    run.check()
    assert len(made) == 2, "both plans have made results"
    assert "partials" in sent
    assert "results" not in sent


@pytest.mark.parametrize("strategy", ["parallel_track", "hybrid", "moving_state"])
def test_windows_are_right_whatever_the_strategy(strategy):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=14, seed=2)
    run = AggregateRun(aggregated_query(), "(a b) c", Settings(3, 8)).process(epochs[:3])
    run.join.migrate("a (b c)", strategy)
    run.process([*epochs[3:], {}])
    assert run.join.manifest.migrations == 1
    run.check()
    run.finish()
