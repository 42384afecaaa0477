"""Listeners of a query: who is called with what, when, and what their errors do."""

import json
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.protocol.event import Event
from midstream.protocol.events import MigrationEnded, MigrationStarted
from midstream.protocol.problems import StreamStalled
from midstream.protocol.progress import EpochProgress
from midstream.protocol.settings import Settings
from midstream.runtime.epoch_reporter import PROGRESS_KEPT
from midstream.storage.memory_store import MemoryStore
from tests.helpers import rows, small_query

QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=30)
SETTINGS = Settings(1, 1)


def arrivals(time: int, names: str = "abc"):
    return {name: rows((time, 1, 0, name)) for name in names}


def test_a_listener_gets_every_event_then_the_progress_of_each_epoch():
    join = InlineJoin(QUERY, settings=SETTINGS)
    heard: list[Any] = []
    join.addListener(heard.append)
    join.run_epoch(arrivals(0))
    join.run_epoch(arrivals(40, "ab"))
    join.migrate("a (b c)", "moving_state")
    join.run_epoch(arrivals(50))
    assert [type(event) for event in heard] == [
        EpochProgress,
        StreamStalled,
        EpochProgress,
        StreamStalled,
        MigrationStarted,
        MigrationEnded,
        EpochProgress,
    ]
    assert [event.batch_id for event in heard] == [0, 1, 1, 2, 2, 2, 2]
    assert [event.status for event in heard if isinstance(event, StreamStalled)] == ["began", "over"]
    progress = [event for event in heard if isinstance(event, EpochProgress)]
    assert [event for p in progress for event in p.events] == [e for e in heard if isinstance(e, Event)]
    assert [p.num_input_rows for p in progress] == [3, 2, 3]
    assert [p.num_output_rows for p in progress] == [1, 0, 4]
    assert {p.query for p in progress} == {progress[0].query}
    assert set(progress[0].duration_ms) == {
        *("trigger", "total", "step", "sink", "commit", "publish", "clean", "decide")
    }


def test_rates_are_per_second_of_the_time_between_epochs_and_of_an_epoch():
    join = InlineJoin(QUERY, settings=SETTINGS)
    for epoch in range(2):
        join.run_epoch(arrivals(epoch))
    first, second = join.recentProgress
    assert first["inputRowsPerSecond"] == 0, "nothing came before"
    for rate in ("inputRowsPerSecond", "processedRowsPerSecond"):
        assert second[rate] > 0
        assert second[rate] == pytest.approx(sum(s[rate] for s in second["sources"].values()), abs=0.5)


def test_recent_progress_is_what_listeners_were_given_in_its_json_form():
    store = MemoryStore()
    join = InlineJoin(QUERY, settings=SETTINGS, store=store)
    assert (join.lastProgress, join.recentProgress) == (None, [])
    heard: list[Any] = []
    join.addListener(heard.append)
    for epoch in range(3):
        join.run_epoch(arrivals(epoch))
    assert join.recentProgress == [progress.to_dict() for progress in heard]
    assert join.lastProgress == heard[-1].to_dict()
    assert json.loads(json.dumps(join.recentProgress)) == join.recentProgress
    again = InlineJoin(QUERY, settings=SETTINGS, store=store)
    assert again.recentProgress == []
    again.run_epoch(arrivals(3))
    first, (second,) = heard[0].to_dict(), again.recentProgress
    assert (second["batchId"], second["id"]) == (3, first["id"])
    assert second["runId"] != first["runId"]


def test_only_the_last_epochs_are_kept():
    join = InlineJoin(QUERY, settings=SETTINGS)
    for _ in range(PROGRESS_KEPT + 2):
        join.run_epoch({})
    assert [p["batchId"] for p in join.recentProgress] == list(range(2, PROGRESS_KEPT + 2))


def test_the_epoch_is_committed_when_a_listener_hears_of_it_and_it_may_migrate():
    join = InlineJoin(QUERY, settings=SETTINGS)
    committed = []

    def listen(event):
        committed.append((event.batch_id, join.manifest.epoch))
        if isinstance(event, EpochProgress) and event.batch_id == 0:
            join.migrate("a (b c)", "moving_state")

    join.addListener(listen)
    join.run_epoch(arrivals(0))
    join.run_epoch(arrivals(1))
    assert all(epoch == manifest for epoch, manifest in committed)
    assert join.manifest.plan == "a (b c)"
    assert [e["type"] for e in join.recentProgress[-1]["events"]] == ["migration-started", "migration-ended"]


class Watcher:
    def __init__(self) -> None:
        self.heard: list[Event | EpochProgress] = []

    def listen(self, event):
        self.heard.append(event)


def test_listeners_come_and_go():
    join = InlineJoin(QUERY, settings=SETTINGS)
    one, two = Watcher(), Watcher()
    join.addListener(one.listen)
    join.addListener(one.listen)  # another object for the same method: it is called once all the same
    join.removeListener(two.listen)  # never added
    join.run_epoch({})
    join.addListener(two.listen)
    join.run_epoch({})
    join.removeListener(one.listen)
    join.run_epoch({})
    assert [event.batch_id for event in one.heard] == [0, 1]
    assert [event.batch_id for event in two.heard] == [1, 2]


def test_a_listener_may_remove_itself():
    join = InlineJoin(QUERY, settings=SETTINGS)
    once, always = [], []

    def listen(event):
        once.append(event.batch_id)
        join.removeListener(listen)

    join.addListener(listen)
    join.addListener(lambda event: always.append(event.batch_id))
    for _ in range(3):
        join.run_epoch({})
    assert (once, always) == ([0], [0, 1, 2])


def test_listeners_of_many_threads_are_all_added():
    join = InlineJoin(QUERY, settings=SETTINGS)
    heard: list[Any] = []
    threads = [
        threading.Thread(target=join.addListener, args=(lambda event, i=i: heard.append(i),))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    join.run_epoch({})
    assert sorted(heard) == list(range(20))


class SparkListener:
    def onQueryProgress(self, event):  # noqa: N802  # Spark's name
        pass


@pytest.mark.parametrize("wrong", [None, "print", SparkListener()], ids=["none", "text", "spark's"])
def test_what_cannot_be_called_is_refused(wrong):
    join = InlineJoin(QUERY, settings=SETTINGS)
    with pytest.raises(OptionError, match=r"a listener must be a function .*spark\.streams\.addListener"):
        join.addListener(wrong)
    join.run_epoch({})


def test_errors_of_a_listener_are_logged_once_each_and_stop_nothing(caplog):
    join = InlineJoin(QUERY, settings=SETTINGS)
    heard: list[Any] = []

    def broken(event):
        if event.batch_id == 2:
            raise KeyError("another error")
        if event.batch_id % 2:
            raise ValueError("one line")
        raise ValueError(f"another line, of batch {event.batch_id}")

    join.addListener(broken)
    join.addListener(heard.append)
    with caplog.at_level(logging.INFO, logger="midstream"):
        for epoch in range(8):
            assert join.run_epoch(arrivals(epoch)).num_rows
    assert [event.batch_id for event in heard] == list(range(8))
    errors = [record.exc_info[1] for record in caplog.records if record.levelno == logging.ERROR]
    assert [str(error) for error in errors] == ["another line, of batch 0", "one line", "'another error'"]
    assert all("broken failed; the query goes on" in record.getMessage() for record in caplog.records)


def test_an_error_of_another_listener_is_another_error(caplog):
    join = InlineJoin(QUERY, settings=SETTINGS)

    @dataclass  # so it has no hash
    class Broken:
        number: int

        def __call__(self, event):
            raise ValueError

    join.addListener(Broken(1))
    join.addListener(Broken(2))
    for _ in range(3):
        join.run_epoch({})
    assert len([record for record in caplog.records if "Broken failed" in record.getMessage()]) == 2


def test_the_log_has_the_events_with_their_severity_and_no_progress(caplog):
    join = InlineJoin(QUERY, settings=SETTINGS)
    with caplog.at_level(logging.DEBUG, logger="midstream"):
        join.run_epoch(arrivals(0))
        join.run_epoch(arrivals(40, "ab"))
        join.migrate("a (b c)", "moving_state")
        join.run_epoch(arrivals(41, "ab"))
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    query = str(join.recentProgress[0]["id"])[:8]
    stalled = StreamStalled(batch_id=1, since=1, stream="c", silent_ms=0)
    assert logged == [
        ("WARNING", f"{query}, batch 1: {stalled.message}"),
        ("INFO", f"{query}, batch 2: migration 1 started: from '(a b) c' to 'a (b c)' by moving_state"),
        ("INFO", f"{query}, batch 2: migration 1 ended with the epoch that began it: the plan is 'a (b c)'"),
    ]
