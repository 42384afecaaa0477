"""A watermark that a row from the future has moved can be set back."""

import random

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from midstream.cli.main import app
from midstream.errors import CheckpointError, LockedError, OptionError
from midstream.inline import InlineJoin
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.protocol.settings import Settings
from midstream.runtime.watermark_reset import reset_watermark
from midstream.storage import lease as leases
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import acquire_lease, seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import close_log, manifests_newest_first, newest_manifest
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.faults import SimulatedCrash
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.helpers import die_at, rows, small_query

YEARS = 1000 * 365 * 86_400 * SECOND
NOW = 1_700_000_000 * SECOND
QUERY = small_query(
    ["a.k = b.k", "a.k = c.k"],
    "abc",
    lateness=10 * SECOND,
    default_window=60 * SECOND,
    select=["a.v as x", "b.v as y", "c.v as z"],
)


OPEN = Settings(2, 4, max_event_time_ahead=None)


def _table(name: str, number: int, rng: random.Random, ahead: int = 0) -> pa.Table:
    """Some rows of an epoch that is ten seconds long."""
    return rows(
        *(
            (
                NOW + ahead + (10 * number + rng.randrange(10)) * SECOND,
                rng.randrange(3),
                0,
                f"{name}{number}.{i}",
            )
            for i in range(4)
        )
    )


def _poisoned(store, plan: str, *, seed: int, who: str, idle: bool, migrate: str | None = None):
    """Epochs of which the fourth has a wrong row; gives what came and the results so far."""
    rng = random.Random(seed)
    settings = Settings(2, 4, Micros(120 * SECOND) if idle else None, max_event_time_ahead=None)
    lease = seize_lease(store, "query")
    join = InlineJoin(QUERY, plan, settings=settings, store=store, lease=lease)
    found, came = [], []
    for number in range(6):
        epoch = {n: _table(n, number, rng) for n in "abc"}
        if number == 3:
            epoch[who] = pa.concat_tables([epoch[who], rows((NOW + YEARS, 0, 0, "wrong"))])
            if idle:
                epoch = {who: epoch[who]}
        if number == 4 and migrate:
            join.migrate("a c b", migrate, background="off")
        found.append(join.run_epoch(epoch))
        came.append(epoch)
    lease.release()
    return join, came, found


def _accepted(join, came):
    """The rows that were not late, by the watermarks of the epochs, from the definition."""
    return accept(QUERY, came, join.coordinator.settings.idle_timeout)


def _times(table):
    return table.column("t").cast(pa.int64()).to_pylist()


def _without_lost(tables, watermarks, who):
    """Rows that setting ``who`` back leaves: by definition, one by one."""
    kept = {}
    window = 60 * SECOND
    for name, table in tables.items():
        others = [n for n in tables if n != name]
        wanted = []
        for position, time in enumerate(_times(table)):
            dead = all(time < watermarks[n] - window for n in others)
            lost = time >= watermarks[who] if name == who else time < watermarks[who] - window
            if not dead and not lost:
                wanted.append(position)
        kept[name] = table.take(pa.array(wanted, pa.int64()))
    return kept


@pytest.mark.parametrize("plan", ["a b c", "(a b) c", "(a c) b", "(b c) a"])
@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("idle", [False, True], ids=["", "with idle streams"])
def test_a_watermark_that_was_set_back_accepts_rows_again(plan, who, idle):
    seed, store = 3, MemoryStore()
    join, came, found = _poisoned(store, plan, seed=seed, who=who, idle=idle)
    accepted = _accepted(join, came)
    tables = accepted.tables(QUERY)
    marks = {n: mark.watermark for n, mark in join.manifest.streams.items()}
    assert marks[who] == NOW + YEARS - 10 * SECOND
    assert_same_rows(pa.concat_tables(found), batch_join(QUERY, tables))
    # All that have run away, one after the other.
    runaway = [n for n in "abc" if marks[n] > NOW + YEARS // 2]
    assert set(runaway) == set("abc" if idle else who)
    back = NOW + 45 * SECOND
    kept = tables
    for name in runaway:
        kept = _without_lost(kept, marks, name)
        marks[name] = back
        reset_watermark(store, seize_lease(store, "reset"), name, back)
        assert fsck(store).problems == ()
    manifest = newest_manifest(store)
    assert manifest is not None
    assert {n: m.watermark for n, m in manifest.streams.items()} == marks
    # Long enough for everything to be merged, and for what expires to go.
    rng = random.Random(-seed)
    again = InlineJoin(QUERY, settings=join.coordinator.settings, store=store)
    more = [{n: _table(n, number, rng) for n in "abc"} for number in range(6, 28)]
    results = [again.run_epoch(epoch) for epoch in more]
    assert all(mark.late == manifest.streams[n].late for n, mark in again.manifest.streams.items())
    together = {n: pa.concat_tables([kept[n], *(epoch[n] for epoch in more)]) for n in "abc"}
    old = batch_join(QUERY, kept)
    want = batch_join(QUERY, together)
    assert want.num_rows > old.num_rows + 100
    assert_same_rows(pa.concat_tables([old, *results]), want)
    assert fsck(store).problems == ()
    assert all((m.latest or 0) < NOW + 1000 * SECOND for m in again.manifest.streams.values())


@pytest.mark.parametrize("strategy", ["parallel_track", "hybrid"])
@pytest.mark.parametrize("who", ["a", "b"])
def test_a_migration_comes_to_its_end_after_a_watermark_was_set_back(strategy, who):
    store = MemoryStore()
    join, came, found = _poisoned(store, "(a b) c", seed=5, who=who, idle=False, migrate=strategy)
    tables = _accepted(join, came).tables(QUERY)
    marks = {n: mark.watermark for n, mark in join.manifest.streams.items()}
    kept = _without_lost(tables, marks, who)
    reset_watermark(store, seize_lease(store, "reset"), who, NOW + 45 * SECOND)
    again = InlineJoin(QUERY, settings=OPEN, store=store)
    rng = random.Random(2)
    more = [{n: _table(n, number, rng) for n in "abc"} for number in range(6, 26)]
    results = [again.run_epoch(epoch) for epoch in more]
    assert again.manifest.migration is None
    assert again.manifest.plan == "a c b"
    want = batch_join(QUERY, {n: pa.concat_tables([kept[n], *(e[n] for e in more)]) for n in "abc"})
    before = batch_join(QUERY, tables)
    old = batch_join(QUERY, kept)
    got = pa.concat_tables([*found, *results])
    assert got.num_rows == before.num_rows + want.num_rows - old.num_rows
    assert_same_rows(pa.concat_tables([got, old]), pa.concat_tables([before, want]))


def _seen(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines())


def test_the_command_shows_and_sets_back(tmp_path):
    store = LocalStore(str(tmp_path))
    _poisoned(store, "a b c", seed=1, who="a", idle=False)
    shown = CliRunner().invoke(app, ["watermark", str(tmp_path)])
    assert shown.exit_code == 0
    seen = _seen(shown.stdout)
    assert list(seen) == ["a", "b", "c"]
    assert seen["a"].startswith("watermark 3023-")
    assert "8 late, 0 future rows" in seen["a"]
    assert seen["b"].startswith("watermark 2023-11-14T22:14:0")
    to = "2023-11-14T22:14:05Z"
    done = CliRunner().invoke(app, ["watermark", str(tmp_path), "--stream", "a", "--to", to])
    assert done.exit_code == 0, done.output
    assert _seen(done.stdout)["a"].startswith(f"watermark {to}, newest 2023-11-14T22:14:15Z")
    assert _seen(CliRunner().invoke(app, ["watermark", str(tmp_path)]).stdout) == _seen(done.stdout)
    fsck = CliRunner().invoke(app, ["fsck", str(tmp_path)])
    assert fsck.exit_code == 0, fsck.output
    assert InlineJoin(QUERY, settings=OPEN, store=store).manifest.streams["a"].watermark == NOW + 45 * SECOND


@pytest.mark.parametrize(
    "arguments",
    [
        ["--stream", "z", "--to", "2023-11-14T22:14:05Z"],
        ["--stream", "a", "--to", "9023-11-14T22:14:05Z"],
        ["--stream", "a", "--to", "yesterday"],
        ["--stream", "a"],
        ["--to", "2023-11-14T22:14:05Z"],
    ],
)
def test_the_command_refuses_what_it_cannot_do_and_changes_nothing(tmp_path, arguments):
    store = LocalStore(str(tmp_path))
    join, *_ = _poisoned(store, "a b c", seed=1, who="a", idle=False)
    done = CliRunner().invoke(app, ["watermark", str(tmp_path), *arguments])
    assert done.exit_code == 3, done.output
    assert newest_manifest(store) == join.manifest


def test_a_watermark_is_set_back_only_where_that_makes_sense():
    store = MemoryStore()
    with pytest.raises(CheckpointError, match=r"must have moved .*Hint: start the query first"):
        reset_watermark(store, seize_lease(store, "reset"), "a", 0)
    join, *_ = _poisoned(store, "a b c", seed=1, who="a", idle=False)
    lease = seize_lease(store, "reset")
    there = join.manifest.streams["a"].watermark
    assert there is not None
    with pytest.raises(
        OptionError, match=r"must be one of the query's; got 'z'\. Hint: the streams are a, b, c"
    ):
        reset_watermark(store, lease, "z", NOW)
    for time in (there, there + 1):
        with pytest.raises(OptionError, match=r"must be set back, not forward.*Hint: give an earlier time"):
            reset_watermark(store, lease, "a", time)
    # A row of its own that is kept is later than that by more than the lateness.
    with pytest.raises(OptionError, match="than the rows of a that are kept have moved it"):
        reset_watermark(store, lease, "a", NOW + 5 * SECOND)
    assert newest_manifest(store) == join.manifest


def test_a_watermark_is_not_set_back_while_an_epoch_is_under_way():
    store = MemoryStore()
    _poisoned(store, "a b c", seed=1, who="a", idle=False)
    with pytest.raises(SimulatedCrash), die_at("after the intent is written"):
        InlineJoin(QUERY, settings=OPEN, store=store).run_epoch({})
    with pytest.raises(CheckpointError, match="got epoch 6, which was begun and not committed"):
        reset_watermark(store, seize_lease(store, "reset"), "a", NOW + 45 * SECOND)
    InlineJoin(QUERY, settings=OPEN, store=store).run_epoch({})
    assert reset_watermark(store, seize_lease(store, "reset"), "a", NOW + 45 * SECOND).epoch == 6


def test_a_watermark_is_not_set_back_while_a_query_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)
    store = LocalStore(str(tmp_path))
    join, *_ = _poisoned(store, "a b c", seed=1, who="a", idle=False)
    running = acquire_lease(store, "query")
    arguments = ["watermark", str(tmp_path), "--stream", "a", "--to", "2023-11-14T22:14:05Z"]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, LockedError) or refused.exit_code not in (0, 1)
    assert newest_manifest(store) == join.manifest
    running.release()
    assert CliRunner().invoke(app, arguments).exit_code == 0


def test_a_damaged_manifest_with_a_watermark_set_back_is_not_done_without():
    # The one before it is of the same epoch, with the watermark that ran away: nobody would notice.
    store = MemoryStore()
    _poisoned(store, "(a b) c", seed=1, who="a", idle=False)
    reset_watermark(store, seize_lease(store, "reset"), "a", NOW + 45 * SECOND)
    name = next(manifests_newest_first(store)).file
    whole = store.read(name).to_pybytes()
    store.put(name, whole[:-9])
    with pytest.raises(CheckpointError, match="must be readable"):
        InlineJoin(QUERY, settings=OPEN, store=store)
    store.put(name, whole)
    InlineJoin(QUERY, settings=OPEN, store=store).run_epoch({})
    assert fsck(store).problems == ()


def test_a_checkpoint_whose_watermark_was_set_back_stays_sound_as_its_manifests_go():
    # Both manifests of that epoch go; if the earlier one stayed, the next epoch would not follow from it.
    store = MemoryStore()
    _poisoned(store, "(a b) c", seed=1, who="a", idle=False)
    for back in (50, 45):
        reset_watermark(store, seize_lease(store, "reset"), "a", NOW + back * SECOND)
    again = InlineJoin(QUERY, settings=OPEN, store=store)
    for _ in range(2 * EPOCHS_KEPT):
        again.run_epoch({})
        assert fsck(store).problems == ()
        kept = [name.epoch for name in manifests_newest_first(store)]
        assert len(set(kept)) <= EPOCHS_KEPT
    assert len(kept) == EPOCHS_KEPT


def test_whoever_was_paused_while_setting_a_watermark_back_does_so_no_more():
    store = MemoryStore()
    join, *_ = _poisoned(store, "a b c", seed=1, who="a", idle=False)
    paused = seize_lease(store, "paused")
    # It has looked whether it holds the lease, and is given up right after.
    successor = InlineJoin(QUERY, settings=OPEN, store=store)
    paused.check = lambda: None  # type: ignore[method-assign]  # it has looked before
    with pytest.raises(CheckpointError, match="committed by one driver only"):
        reset_watermark(store, paused, "a", NOW + 45 * SECOND)
    successor.run_epoch({})
    again = InlineJoin(QUERY, settings=OPEN, store=store)
    assert again.manifest.epoch == join.manifest.epoch + 1
    assert fsck(store).problems == ()


def test_nothing_is_set_back_once_the_lease_was_given_back():
    store = MemoryStore()
    join, *_ = _poisoned(store, "a b c", seed=1, who="a", idle=False)
    lease = seize_lease(store, "reset")
    lease.release()
    with pytest.raises(CheckpointError, match="which has given it back"):
        reset_watermark(store, lease, "a", NOW + 45 * SECOND)
    assert newest_manifest(store) == join.manifest


def test_a_closed_log_takes_no_second_manifest_of_its_newest_epoch():
    store = MemoryStore()
    join, *_ = _poisoned(store, "a b c", seed=1, who="a", idle=False)
    close_log(store, 7, by=8)
    for epoch in (join.manifest.epoch, join.manifest.epoch + 1):
        assert not store.put_if_absent(f"manifests/{7:012d}-{epoch:012d}.json", b"")
    assert newest_manifest(store) == join.manifest


def test_a_stream_that_only_followed_others_is_set_back_to_what_it_brought():
    store = MemoryStore()
    settings = Settings(1, 1, Micros(30 * SECOND), max_event_time_ahead=None)
    query = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=60 * SECOND)
    join = InlineJoin(query, settings=settings, store=store)
    join.run_epoch({"a": rows((0, 1)), "b": rows((0, 1))})
    join.run_epoch({"b": rows((100 * SECOND, 1))})
    marks = join.manifest.streams
    assert (marks["a"].watermark, marks["c"].watermark) == (100 * SECOND, 100 * SECOND)
    for name, latest in (("a", 0), ("c", None)):
        after = reset_watermark(store, seize_lease(store, "reset"), name, 40 * SECOND).streams[name]
        assert (after.watermark, after.latest, after.idle) == (40 * SECOND, latest, False)
    with pytest.raises(OptionError, match="than the rows of a"):
        reset_watermark(store, seize_lease(store, "reset"), "a", -SECOND)
