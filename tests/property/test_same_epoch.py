"""An epoch that runs again is the same epoch, whatever options, requests and clock it has the second time.

Every epoch of a random workload runs once, undisturbed, in a copy of the checkpoint. In the checkpoint
itself, its first attempt crashes, or its manifest is damaged afterwards; further attempts have other options,
another clock and new requests. The outcome must be the same as that of the undisturbed run, byte by byte.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.adapt.policy import GOALS, MigrationPolicy
from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.migration.request import StoredMigrationRequest, make_request, write_request
from midstream.migration.strategies import STRATEGY_CHOICES
from midstream.protocol.settings import CLOCKS, ONE_DAY, Settings
from midstream.runtime.crash_points import POINTS
from midstream.state.manifest import OutputFile
from midstream.storage.fsck import check as fsck
from midstream.storage.intents import find_intent
from midstream.storage.lease import seize_lease
from midstream.storage.manifest_log import manifests_newest_first
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import FragmentRunId, OutputTable
from midstream.testing.draw_plans import draw_plan
from midstream.testing.faults import SimulatedCrash
from midstream.testing.random_streams import SECOND, START
from midstream.testing.workload import Workload, draw_workload
from midstream.values import Micros
from tests.helpers import die_at

BEFORE = POINTS[: POINTS.index("after the commit")]
AFTER = POINTS[POINTS.index("after the commit") : POINTS.index("after deleting a slice")]


@dataclass
class RecordingTable:
    """A folder of Parquet files that records all rows that are staged for it."""

    table: OutputTable
    staged: dict[FragmentRunId, pa.Table] = field(default_factory=dict)

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        self.staged[task] = rows
        return self.table.stage(task, rows)

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        self.table.publish(outputs)

    def sweep(self) -> None:
        self.table.sweep()


@dataclass
class AttemptTerms:
    """What may differ from one attempt to the next."""

    settings: Settings
    now: int
    background_epochs: int | None


class Published:
    """One checkpoint, and the folders of its results and late rows."""

    def __init__(self, work: Workload, root: Path, store: MemoryStore) -> None:
        self.work = work
        self.root = root
        self.store = store

    def open(self, settings: Settings) -> tuple[InlineJoin, dict[str, RecordingTable]]:
        lease = seize_lease(self.store, "run")
        sinks = {
            "results": RecordingTable(
                OutputTable("results", f"{self.root}/results", "q", lease=lease.number)
            ),
            "late": RecordingTable(OutputTable("late", f"{self.root}/late", "q", lease=lease.number)),
        }
        for sink in sinks.values():
            sink.table = sink.table.identified()
        work = self.work
        late = sinks["late"] if work.keeps_late else None
        join = InlineJoin(
            *(work.query, work.plan),
            settings=settings,
            store=self.store,
            sink=sinks["results"],
            late_sink=late,
            lease=lease,
        )
        return join, sinks

    def files(self, epoch: int) -> dict[str, bytes]:
        """The published files of an epoch."""
        return {
            f"{path.parent.name}/{path.name}": path.read_bytes()
            for path in self.root.glob(f"*/part-{epoch:010d}-*.parquet")
        }

    def damage(self) -> None:
        name = next(manifests_newest_first(self.store)).file
        data = bytearray(self.store.read(name).to_pybytes())
        data[len(data) // 2] ^= 1
        self.store.put(name, bytes(data))


def outcome(join: InlineJoin) -> tuple[object, ...]:
    """A manifest without what depends on the lease and the number of attempts."""
    manifest = join.manifest
    slices = [
        (s.owner, s.first_epoch, s.last_epoch, s.epochs, s.rows, s.latest, s.bytes, s.sha256, s.by_time)
        for s in manifest.slices
    ]
    outputs = sorted((o.table, o.published, o.rows) for o in manifest.outputs)
    plans = (
        manifest.plan,
        manifest.state_ids,
        manifest.migration,
        manifest.ended_migration,
        manifest.applied_requests,
        manifest.routings,
        manifest.applied_rescales,
    )
    figures = manifest.statistics, manifest.adaptation, manifest.balance, manifest.results
    return (manifest.epoch, manifest.streams, slices, outputs, plans, figures)


def draw_terms(rng: random.Random, work: Workload, number: int) -> AttemptTerms:
    partitions = rng.choice((work.settings.partitions, rng.randint(1, work.settings.groups)))
    settings = replace(
        work.settings,
        partitions=partitions,
        shares=work.settings.shares if partitions == work.settings.partitions else (),
        idle_timeout=rng.choice((None, Micros(SECOND), Micros(25 * SECOND))),
        adapt=len(work.query.names) < 5 and rng.random() < 0.5,
        policy=MigrationPolicy(rng.choice(STRATEGY_CHOICES), rng.random() < 0.5, rng.choice(GOALS)),
        max_event_time_ahead=rng.choice((None, ONE_DAY, Micros(5 * SECOND))),
        event_time_clock=rng.choice(CLOCKS),
    )
    clock_error = rng.choice((0, 0, -3600, 400 * 86_400))
    now = START + (10 * number + 15 + clock_error) * SECOND
    return AttemptTerms(settings, now, rng.choice((0, 1, 3, None)))


def request_migration(rng: random.Random, work: Workload, join: InlineJoin) -> StoredMigrationRequest | None:
    """Request a random plan and strategy; returns the request, if it is possible for the query."""
    plan, strategy = draw_plan(rng, work.query.names), rng.choice(STRATEGY_CHOICES)
    background = rng.random() < 0.5
    try:
        request = make_request(work.query, plan, strategy, background=background)
    except OptionError:
        return None
    join.migrate(plan, strategy, background="auto" if background else "off")
    return write_request(request)


def run_until(join: InlineJoin, work: Workload, number: int, terms: AttemptTerms, point: str | None) -> bool:
    """Run an epoch, and crash when ``point`` is reached; False if it did."""
    try:
        with die_at(point):
            join.run_epoch(work.epochs[number], background_epochs=terms.background_epochs, now=terms.now)
    except SimulatedCrash:
        return False
    return True


class Trial:
    """A workload of which every epoch runs both undisturbed and with crashes."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        self.work = draw_workload(self.rng, seed)
        self.disturbed = Published(self.work, root / "checkpoint", MemoryStore())
        self.root = root
        self.pending_request: StoredMigrationRequest | None = None
        """The newest request, until an epoch that was begun applies it."""
        self.crashed_at: set[str] = set()
        """The points at which attempts have crashed."""

    def run(self) -> set[str]:
        for number in range(len(self.work.epochs)):
            self._epoch(number)
        assert fsck(self.disturbed.store).problems == ()
        names = [
            sorted(p.name for p in self.root.glob(f"{run}/*/*.parquet")) for run in ("checkpoint", "alone")
        ]
        assert names[0] == names[1]
        return self.crashed_at

    def _epoch(self, number: int) -> None:
        terms = draw_terms(self.rng, self.work, number)
        join, sinks = self.disturbed.open(terms.settings)
        assert join.manifest.epoch == number - 1
        self._may_request(join, 0.3)
        due = self.pending_request if join.manifest.migration is None else None
        undisturbed = Published(self.work, self.root / "alone", MemoryStore(dict(self.disturbed.store.files)))
        expected, expected_sinks = undisturbed.open(terms.settings)
        assert run_until(expected, self.work, number, terms, None)
        intent = find_intent(undisturbed.store, number)
        assert intent is not None
        waits = intent.waiting is not None and bool(join.manifest.memory.cuts)
        assert due == (intent.waiting if waits else intent.request), "the next epoch that is begun applies it"
        self.pending_request = None if due is not None and not waits else self.pending_request
        point: str | None = self.rng.choice((*BEFORE, *AFTER, "damage"))
        while True:
            ended = run_until(join, self.work, number, terms, point)
            self._compare(sinks, expected_sinks, whole=ended)
            if ended:
                assert outcome(join) == outcome(expected)
            self.crashed_at |= {point} if point is not None and not ended else set()
            committed = (ended and point == "damage") or (point in AFTER and self.rng.random() < 0.5)
            if committed and number:
                self.crashed_at.add("damage")
                self.disturbed.damage()
            terms = draw_terms(self.rng, self.work, number)
            join, sinks = self.disturbed.open(terms.settings)
            if join.manifest.epoch == number:
                break
            self._may_request(join, 0.7)
            point = self.rng.choice((None, *BEFORE))
        assert outcome(join) == outcome(expected)
        assert self.disturbed.files(number) == undisturbed.files(number)

    def _may_request(self, join: InlineJoin, rate: float) -> None:
        if self.rng.random() < rate:
            self.pending_request = request_migration(self.rng, self.work, join) or self.pending_request

    def _compare(
        self, sinks: dict[str, RecordingTable], expected_sinks: dict[str, RecordingTable], *, whole: bool
    ) -> None:
        """An attempt has staged the same rows as the undisturbed run, as far as it came."""
        for name, sink in sinks.items():
            expected = expected_sinks[name].staged
            assert all(rows.equals(expected[task]) for task, rows in sink.staged.items())
            assert not whole or set(sink.staged) == set(expected)


def test_an_epoch_that_runs_again_is_the_same_epoch(tmp_path):
    crashed_at: set[str] = set()
    for seed in range(60):
        work = draw_workload(random.Random(seed), seed)
        # Longer workloads are for the slow test below.
        if len(work.query.names) <= 3 and len(work.epochs) <= 6:
            crashed_at |= Trial(seed, tmp_path / str(seed)).run()
        if crashed_at == {*BEFORE, *AFTER, "damage"}:
            break
    assert crashed_at == {*BEFORE, *AFTER, "damage"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_an_epoch_of_any_workload_that_runs_again_is_the_same_epoch(tmp_path, seed):
    Trial(seed, tmp_path).run()
