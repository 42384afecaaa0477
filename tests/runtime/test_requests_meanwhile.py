"""Requests of another thread while an epoch is committed: they find what was before it, or is after it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.state.manifest import Manifest
from midstream.testing import Shape, generate, stream
from midstream.values import Micros

SHAPE = Shape(rows=6, keys=4)
EPOCHS = generate(dict.fromkeys("ab", SHAPE), epochs=20, seed=1)


def query(*on: str) -> Query:
    streams = [stream(name, SHAPE) for name in "ab"]
    on = ("a.k = b.k", *on)
    return build_query(streams, on, default_window=Micros(5_000_000), select=["a.id", "b.id"])


OLD, NEW = query(), query("a.id <> b.id")


class _SeenLock:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, waits: threading.Event) -> None:
        self._lock = threading.RLock()
        self._waits = waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Meanwhile:
    """Asks in another thread while an epoch is committed, and lets that thread go as far as it can."""

    def __init__(
        self,
        join: InlineJoin,
        ask: Callable[[], None],
        at: Callable[[Manifest], bool],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.errors: list[Exception] = []
        self._ask = ask
        self._moved = threading.Event()
        self._thread = threading.Thread(target=self._run)
        join._runner.requests.lock = _SeenLock(self._moved)  # type: ignore[assignment]  # it is used like one
        real = QueryCoordinator.after

        def after(boxes: QueryCoordinator, manifest: Manifest) -> QueryCoordinator:
            chosen = real(boxes, manifest)
            if at(manifest) and not self._moved.is_set():
                self._thread.start()
                assert self._moved.wait(60), "the request must be made, or wait"
            return chosen

        patch.setattr(QueryCoordinator, "after", after)

    def _run(self) -> None:
        try:
            self._ask()
        except Exception as error:  # the test looks at it
            self.errors.append(error)
        finally:
            self._moved.set()

    def finish(self) -> None:
        self._thread.join()
        assert self.errors == []


def test_a_definition_that_is_asked_for_during_a_commit_is_not_forgotten(monkeypatch):
    join = InlineJoin(OLD, settings=Settings(2, 8))
    join.run_epoch(EPOCHS[0])
    meanwhile = Meanwhile(join, lambda: join.replace(NEW), lambda manifest: manifest.epoch == 1, monkeypatch)
    join.run_epoch(EPOCHS[1])
    meanwhile.finish()
    # As it cannot be read back from the checkpoint if it has functions of users.
    assert join.coordinator.known == (NEW,)
    join.run_epoch(EPOCHS[2])
    assert join.manifest.replacement is not None


def test_what_is_asked_for_while_a_replacement_ends_is_compared_with_the_new_definition(monkeypatch):
    join = InlineJoin(OLD, settings=Settings(2, 8))
    join.run_epoch(EPOCHS[0])
    join.replace(NEW)
    meanwhile = Meanwhile(
        join, lambda: join.replace(OLD), lambda manifest: manifest.ended_replacement is not None, monkeypatch
    )
    while join.manifest.ended_replacement is None:
        join.run_epoch(EPOCHS[join.manifest.epoch + 1])
    meanwhile.finish()
    assert join.query == NEW
    assert join.is_replacing
    while join.manifest.replacements < 2 or join.manifest.ended_replacement is None:
        join.run_epoch(EPOCHS[join.manifest.epoch + 1])
    assert join.query == OLD
