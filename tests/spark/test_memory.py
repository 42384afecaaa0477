"""Living within a budget of memory on Spark: what is spilled is owed, and made in the end."""

import threading
import time

import pytest

from midstream import EpochProgress, OptionError, StreamError
from midstream.runtime.crash_points import crash_hook
from midstream.spark.query_identity import running_query
from midstream.storage.intents import find_intent
from midstream.storage.local import LocalStore
from tests.spark.migration_scenario import ONE_KEY, SEVERAL_KEYS, columns, events_of
from tests.spark.migration_scenario import rows as as_rows

pytestmark = pytest.mark.spark

TINY = {"stateMemory": "8k", "partitions": 2, "groups": 16}


def _add_and_start(scenario, join, **options):
    scenario.add(4)
    return scenario.runner.start(join(), **{**TINY, **options})


@pytest.mark.parametrize(
    ("predicates", "source", "strategy"),
    [(ONE_KEY, columns, "random"), (SEVERAL_KEYS, as_rows, "global_output_penalty")],
)
def test_results_are_complete_when_all_input_is_processed(scenario, predicates, source, strategy):
    join = scenario.join_of(predicates, source)
    for _ in range(2):
        query = _add_and_start(scenario, join, spill=strategy)
        query.awaitTermination()
        events = [event["type"] for event in events_of(query)]
        assert "state-spilled" in events
        assert {"state-cleaned-up", "state-brought-back"} & set(events)
        manifest = query._handler.manifest
        assert manifest.epochs_without_batch > 0
        assert not query._handler.coordinator.owes(manifest)
        progress = query.lastProgress
        assert progress["memory"]["owedGroups"] == progress["memory"]["owedRows"] == 0
        assert progress["memory"]["owedSince"] is None
        assert any(p["stateBytesSpilled"] > 0 for p in query.recentProgress)
        assert all(p["stateBytesTouched"] > 0 for p in query.recentProgress[1:])
        scenario.check(join())


def test_a_running_query_is_drained_and_goes_on(scenario):
    scenario.add(3)
    join = scenario.join_of(SEVERAL_KEYS, columns)
    query = _start(scenario, join)
    query.processAllAvailable()

    def fail(point):
        if point == "before the commit":
            raise RuntimeError("failed in a drain")

    with crash_hook(fail), pytest.raises(RuntimeError, match="failed in a drain"):
        query.drain()
    # The epoch that it has begun runs before the next batch.
    scenario.add(1)
    query.processAllAvailable()
    query.drain()
    assert not query._handler.coordinator.owes(query._handler.manifest)
    assert query.lastProgress["memory"]["owedGroups"] == 0
    scenario.check(join())
    scenario.add(3)
    query.processAllAvailable()
    query.stop(drain=True)
    scenario.check(join())
    with pytest.raises(StreamError, match="a query must be running to drain"):
        query.drain()


def test_a_drain_that_was_cut_off_goes_on_after_a_restart(scenario):
    join = scenario.join_of(SEVERAL_KEYS, columns)
    died: list[int] = []

    def die_in_the_first_drain(point):
        begun = find_intent(LocalStore(str(scenario.runner.checkpoint)), _epoch(scenario) + 1)
        if point == "before the commit" and begun is not None and begun.without_batch and not died:
            died.append(begun.epoch)
            raise RuntimeError("died in a drain")

    with crash_hook(die_in_the_first_drain):
        query = _add_and_start(scenario, join)
        with pytest.raises(RuntimeError, match="died in a drain"):
            query.awaitTermination()
    query = _add_and_start(scenario, join)
    query.awaitTermination()
    assert died
    scenario.check(join())


def test_a_query_that_drains_at_its_end_is_active_and_can_be_stopped(scenario):
    join = scenario.join_of(SEVERAL_KEYS, columns)
    reached, go_on = threading.Event(), threading.Event()

    def wait_in_a_drain(point):
        if point == "before the commit" and query._handler.manifest.batch == batches - 1:
            reached.set()
            assert go_on.wait(60)

    batches = 4
    query = _add_and_start(scenario, join)
    with crash_hook(wait_in_a_drain):
        assert reached.wait(60)
        assert query.isActive
        stopping = threading.Thread(target=query.stop)
        stopping.start()
        go_on.set()
        stopping.join(60)
    assert not query.isActive
    assert query.exception() is None
    query.awaitTermination()
    assert query._handler.coordinator.owes(query._handler.manifest)
    # Another start makes what is left, also if it is stopped meanwhile.
    query = _add_and_start(scenario, join)
    query.stop(drain=True)
    assert not query._handler.coordinator.owes(query._handler.manifest)
    query.awaitTermination()


def test_a_listener_may_stop_a_query_in_a_drain_while_a_batch_waits(scenario, monkeypatch):
    scenario.add(3)
    join = scenario.join_of(SEVERAL_KEYS, columns)
    query = _start(scenario, join)
    query.processAllAvailable()
    batch_waits = threading.Event()

    def note(*arguments):
        running = running_query(*arguments)
        batch_waits.set()
        return running

    monkeypatch.setattr("midstream.spark.micro_batch_handler.running_query", note)

    def stop_once_a_batch_waits(event):
        if isinstance(event, EpochProgress) and not batch_waits.is_set():
            scenario.add(1)
            assert batch_waits.wait(60)
            time.sleep(0.3)  # it is about to wait for the lock
            query.stop()

    query.addListener(stop_once_a_batch_waits)
    # Not to be drained after all is something that a caller must learn.
    drained: list[Exception] = []

    def drain():
        try:
            query.drain()
        except StreamError as error:
            drained.append(error)

    draining = threading.Thread(target=drain, daemon=True)
    draining.start()
    draining.join(60)
    assert not draining.is_alive()
    assert "must run until it is drained; got one that has ended before" in str(drained)
    assert query.awaitTermination(60)
    assert query.exception() is None
    with pytest.raises(StreamError, match="must run until it is drained"):
        query.stop(drain=True)
    query.stop()
    scenario.runner.start(join(), **TINY).awaitTermination()
    scenario.check(join())


def test_a_query_is_stopped_though_its_drain_fails(scenario):
    scenario.add(3)
    join = scenario.join_of(SEVERAL_KEYS, columns)
    query = _start(scenario, join)
    query.processAllAvailable()

    def fail(point):
        if point == "before the commit":
            raise RuntimeError("failed in a drain")

    with crash_hook(fail), pytest.raises(RuntimeError, match="failed in a drain"):
        query.stop(drain=True)
    assert not query.isActive
    scenario.runner.start(join(), **TINY).awaitTermination()
    scenario.check(join())


def _start(scenario, join):
    runner = scenario.runner
    writer = join().writeStream.format("parquet").option("path", runner.out).options(adapt="off", **TINY)
    return writer.option("checkpointLocation", runner.checkpoint).start()


def _epoch(scenario):
    names = (scenario.runner.checkpoint / "manifests").glob("*.json")
    return max((int(path.stem.rpartition("-")[2]) for path in names), default=-1)


def test_options_about_a_budget_need_one(scenario):
    scenario.add(1)
    for option, value in (("spill", "largest"), ("spillShare", "0.5"), ("cleanupDelay", "1 minute")):
        with pytest.raises(OptionError, match=f"{option} must be set together with stateMemory"):
            scenario.runner.start(scenario.join(), **{option: value})
    with pytest.raises(OptionError, match="stateMemory must be a size such as '512m'; got 'much'"):
        scenario.runner.start(scenario.join(), stateMemory="much")
