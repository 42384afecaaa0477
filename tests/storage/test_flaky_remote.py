"""An object store that fails, delays, repeats and forgets: the promise holds, and errors are ones we know."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from midstream.errors import CheckpointError, MidstreamError
from midstream.inline import InlineJoin
from midstream.runtime.crash_points import crash_hook
from midstream.storage import lease as leases
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import acquire_lease
from midstream.storage.manifest_log import newest_manifest
from midstream.storage.output_table import OutputTable
from midstream.storage.remote import RemoteStore, store_at
from tests.small_case import EPOCHS, QUERY, SETTINGS, check_results
from tests.storage.flaky_proxy import FAULTS, FlakyProxy

SEEDS = (1, 2)
LIVES = 400
SECONDS = 100
"""More than enough for any run to come through; one that does not is stuck."""


@pytest.fixture
def new_connection(monkeypatch):
    """fsspec keeps one connection per process; here each test has its own, which soon gives up."""
    import fsspec

    client = fsspec.get_filesystem_class("s3")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(client, "retries", 2)
    client.clear_instance_cache()
    yield
    client.clear_instance_cache()


@pytest.fixture
def proxy(object_store, bucket, new_connection, monkeypatch):
    with FlakyProxy(object_store, seed=1).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield proxy


@pytest.fixture
def flaky(proxy, bucket) -> RemoteStore:
    """A store behind the proxy, without a cache: all that is read comes over the network."""
    store = store_at(f"s3://{bucket}/checkpoint", cached=False)
    assert isinstance(store, RemoteStore)
    return store


def _known(call: Callable[[], object], seen: Counter[str]) -> None:
    """Any other error goes through, and fails the test."""
    try:
        call()
        seen["fine"] += 1
    except (OSError, MidstreamError) as error:
        seen["clear" if "must do what it is asked; got" in str(error) else str(error)] += 1


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_the_network_does_errors_are_ones_that_drivers_know(flaky, proxy, fault):
    flaky.put("manifests/0", b"bytes" * 50)
    calls: list[Callable[[], object]] = [
        lambda: flaky.put("manifests/1", b"bytes"),
        lambda: flaky.put_if_absent("manifests/0", b"bytes"),
        lambda: flaky.read("manifests/0"),
        lambda: flaky.list("manifests"),
        lambda: flaky.delete("manifests/1"),
    ]
    seen: Counter[str] = Counter()
    with proxy.failing(1, [fault]):
        for call in calls:
            _known(call, seen)
    assert proxy.struck[fault] >= 1
    assert set(seen) <= {"fine", "clear"}
    assert (seen["fine"] == len(calls)) == (fault in {"slow", "twice", "terse"}), seen
    # Afterwards all is well, over the same connection.
    assert flaky.read("manifests/0").size == 250
    assert not flaky.put_if_absent("manifests/0", b"")


def test_a_put_whose_answer_is_lost_has_happened_and_is_not_ones_own(flaky, proxy):
    for fault in ("twice", "answer lost"):
        with proxy.failing(1, [fault]), contextlib.suppress(OSError):
            assert not flaky.put_if_absent(f"m/{fault}", b"x")
        assert flaky.read(f"m/{fault}").to_pybytes() == b"x"


def test_a_commit_that_is_put_twice_is_known_to_be_ones_own(flaky, proxy, tmp_path):
    query = InlineJoin(QUERY, settings=SETTINGS, store=flaky)

    def twice(point: str) -> None:
        if point == "before the commit":
            network.enter_context(proxy.failing(1, ["twice"]))
        if point == "after the commit":
            network.close()

    with contextlib.ExitStack() as network, crash_hook(twice):
        query.run_epoch(EPOCHS[0])
    assert query.manifest.epoch == 0


def test_a_commit_whose_answer_is_lost_ends_the_query_and_the_next_start_goes_on_from_it(
    flaky, proxy, tmp_path
):
    sink = OutputTable("results", str(tmp_path / "results"), "q")
    with contextlib.ExitStack() as network:

        def fail(point: str) -> None:
            if point == "before the commit":
                network.enter_context(proxy.failing(1, ["answer lost"]))

        query = InlineJoin(QUERY, settings=SETTINGS, store=flaky, sink=sink)
        with crash_hook(fail), pytest.raises((OSError, CheckpointError), match=r"must .*; got .* Hint:"):
            query.run_epoch(EPOCHS[0])
    assert query.manifest.epoch == -1
    query = InlineJoin(QUERY, settings=SETTINGS, store=flaky, sink=sink)
    assert query.manifest.epoch == 0
    for epoch in EPOCHS[1:]:
        query.run_epoch(epoch)
    check_results(tmp_path / "results")


class Lives:
    """A query that is started again as often as its object store lets it die."""

    def __init__(self, store: RemoteStore, sink: OutputTable) -> None:
        self.store = store
        self.sink = sink
        self.asked = False
        self.deaths: Counter[str] = Counter()

    def go(self) -> None:
        end = time.monotonic() + SECONDS
        for _ in range(LIVES):
            try:
                return self._live()
            except (OSError, MidstreamError) as error:
                self.deaths[_short(error)] += 1
            assert time.monotonic() < end, self.deaths
        raise AssertionError(f"never came through: {self.deaths}")

    def _live(self) -> None:
        query = InlineJoin(QUERY, "(a b) c", settings=SETTINGS, store=self.store, sink=self.sink)
        while query.manifest.epoch + 1 < len(EPOCHS):
            if query.manifest.epoch + 1 == 3 and not self.asked:
                query.migrate("a (b c)", "hybrid", background="off")
                self.asked = True
            query.run_epoch(EPOCHS[query.manifest.epoch + 1])


def _short(error: Exception) -> str:
    if isinstance(error, CheckpointError):
        # One's own manifest, whose answer was lost, and nothing else that a checkpoint may lack.
        assert "must be committed by one driver only" in str(error), error
    return type(error).__name__


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_query_whose_object_store_fails_again_and_again_is_exact(
    object_store, bucket, new_connection, monkeypatch, tmp_path, seed
):
    with FlakyProxy(object_store, seed).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        url = f"s3://{bucket}/checkpoint"
        store = store_at(url)
        assert isinstance(store, RemoteStore)
        lives = Lives(store, OutputTable("results", str(tmp_path / "results"), "q"))
        with proxy.failing(0.06):
            lives.go()
        assert lives.deaths["OSError"] > 3
        assert len(proxy.struck) == len(FAULTS), proxy.struck
        # Once all is quiet: nothing is lost, nothing is doubled, nothing is damaged.
        check_results(tmp_path / "results")
        findings = fsck(store_at(url, cached=False))
        assert findings.problems == ()
        assert findings.epoch == len(EPOCHS) - 1
        manifest = newest_manifest(store)
        assert manifest is not None
        assert (manifest.plan, manifest.migration) == ("a (b c)", None)
        print(f"{proxy.requests} requests, {dict(proxy.struck)}, deaths {dict(lives.deaths)}")


def test_the_thread_that_keeps_a_lease_survives_whatever_the_network_does(flaky, proxy, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.02)
    before = set(threading.enumerate())
    lease = acquire_lease(flaky, "first")
    new = set(threading.enumerate()) - before
    (keeper,) = (thread for thread in new if thread.name == "midstream lease")
    with proxy.failing(0.7):
        begun, end = proxy.requests, time.monotonic() + 30
        while proxy.requests < begun + 60 and time.monotonic() < end:
            time.sleep(0.02)
        lease.release()
        time.sleep(0.2)
    keeper.join(20)
    assert not keeper.is_alive()
    assert "leases/000000000001.released" in flaky.list("leases")
    second = acquire_lease(flaky, "second")
    assert second.number == 2
    second.release()
