"""The simulator: the production code in one process, over a store with faults, all drawn from a seed.

A seed draws a workload (:mod:`midstream.testing.workload`) and faults (:mod:`midstream.testing.faults`). The
query is started again and again, each time until it is stopped or dies, until all epochs are committed. What
must hold meanwhile and in the end is in :mod:`midstream.testing.promises`.

    life 1   epoch 0, epoch 1, dies while it publishes -- power cut -- check everything
    life 2   finishes publishing, epoch 2, no space left ------------- check everything
             a bit flips
    life 3   refuses the damaged slice ------------------------------- repair it, check everything
    life 4   epoch 3, is paused ... life 5 takes over, epochs 3 and 4 ... life 4 wakes, and must do no harm

A process may be paused at every crash point and before every call of the store. Another driver, or a command
that collects garbage or sets a watermark back, then runs in between, in the same thread, so that a seed
always does the same. Between lives options change, and clocks are wrong; verdicts about the plan may be late;
requests arrive, and readers move files away, at any time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from midstream.errors import CheckpointError, FencedError
from midstream.inline import InlineJoin
from midstream.migration.request import MigrationRequest, write_request
from midstream.protocol.intent import decode_intent
from midstream.query.query import Query
from midstream.runtime.crash_points import crash_hook
from midstream.storage.fsck import collect_garbage
from midstream.storage.intents import intent_name
from midstream.storage.lease import Lease, seize_lease
from midstream.testing.black_boxes import BlackBoxRequester
from midstream.testing.broken_promise import check_promise, other_errors_are_broken_promises
from midstream.testing.drains import Drains
from midstream.testing.faults import MAX_REFUSED_CALLS, FaultStore, SimulatedCrash, faults_survived
from midstream.testing.late_verdicts import late_verdicts
from midstream.testing.outcome import SimulationOutcome
from midstream.testing.possible_terms import refuses_windows
from midstream.testing.process import Process, newest_lease, wall_clock
from midstream.testing.promises import Promises, step_files
from midstream.testing.random_cuts import decided_by
from midstream.testing.random_places import placed_by
from midstream.testing.replacements import Replacements
from midstream.testing.rescales import Rescales
from midstream.testing.store_checks import StoreChecks
from midstream.testing.store_sink import StoreSink
from midstream.testing.variation import check_variation
from midstream.testing.watermark_resets import WatermarkResets
from midstream.testing.workload import changed_settings, draw_workload, features_of, with_runaway

_MAX_PAUSED = 2
"""How many processes may be paused at a time."""
_MAX_CALLS = 100_000
"""A seed makes a few hundred calls of the store; one that makes many more would never end."""
_RATE_IN_CALLS = 0.1
"""How likely events are before a call of the store, compared with a crash point."""
_DRAIN_RATE = 0.1
"""How often an epoch makes what spilled groups owe, if there is a budget of memory."""
_CONFIRMED_BY_FENCED = "a driver that was fenced has confirmed a request"


def simulate(seed: int) -> SimulationOutcome:
    """Run one seed; an error names the promise that was broken."""
    simulation = _Simulation(seed)
    with decided_by(simulation.workload.cuts), placed_by(simulation.workload.places):
        return simulation.run()


class _Simulation:
    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)  # noqa: S311  # it must be reproducible
        # Drawn separately, so that seeds differ only where users and operators do something.
        self.user = random.Random(f"user {seed}")  # noqa: S311  # it must be reproducible
        self.reset_rate = self.user.choice((0.0, 0.0, 0.5))
        self.ask_rate = self.user.choice((0.0, 0.0, 0.01, 0.03))
        self.workload = draw_workload(rng, seed)
        if self.workload.may_spill or self.workload.query.aggregation is not None:
            # While state is spilled, or once windows have left, a watermark is not set back.
            self.reset_rate = 0.0
        if self.reset_rate:
            self.workload = with_runaway(self.workload, self.user)
        self.store = FaultStore(
            rng,
            budget=rng.choice((0, 3, 6, 12, 24)),
            error_rate=rng.choice((0.0, 0.003, 0.01)),
            death_rate=rng.choice((0.0, 0.003, 0.01)),
            late_rate=rng.choice((0.0, 0.1)),
            full_rate=rng.choice((0.0, 0.0, 0.01)),
            on_call=self._before_call,
        )
        self.outcome = SimulationOutcome(seed, str(self.workload))
        self.black_boxes = BlackBoxRequester(seed, self.outcome)
        self.drains = Drains(self.store, self.outcome)
        self.crash_rate = rng.choice((0.0, 0.01, 0.04))
        self.rot_rate = rng.choice((0.0, 0.2, 0.5))
        self.stop_rate = rng.choice((0.0, 0.1, 0.3))
        self.pause_rate = rng.choice((0.0, 0.03, 0.1, 0.3))
        self.change_rate = rng.choice((0.0, 0.5))
        self.move_rate = rng.choice((0.0, 0.1, 0.5))
        # Only where the last driver was stopped is no epoch under way.
        self.stop_rate = 0.3 if self.reset_rate else self.stop_rate
        self.max_lives = 1 + len(self.workload.epochs) + self.drains.left
        self.max_lives += (1 + MAX_REFUSED_CALLS) * self.store.budget
        self.decider = late_verdicts(seed, self.workload.query)
        self.rescales = Rescales(self.outcome, may_ask=self.workload.query.topology is None)
        self.promises = Promises(self.workload, self.rescales)
        self.resets = WatermarkResets(self.store, self.promises, self.user)
        self.replacements = Replacements(self.outcome, self.promises.definitions, self.store)
        self.readers = self.replacements.readers()
        self.checks = StoreChecks(self.store, self.promises, self.readers)
        self.life = Process()
        self.asked: dict[int, list[Query]] = {}
        """For each epoch, the query as the drivers have asked it that have come to the epoch."""
        self.paused = 0
        """How many processes are paused now."""
        self.calls = 0
        self.requested: set[int] = set()
        """The epochs before which a request was made."""

    def run(self) -> SimulationOutcome:
        with other_errors_are_broken_promises(), crash_hook(self._on_crash_point):
            lives = 0
            while not self._live():
                lives += 1
                check_promise("liveness", lives < self.max_lives, f"{self.max_lives} lives were not enough")
            self._check_end()
            self.life = Process(pausable=False)  # none of the query's
            check_variation(self.workload, self.promises, self.rng)
        tables = self.promises.expected.tables
        self.outcome.results = sum(table.num_rows for table in tables["results"])
        self.outcome.late = sum(table.num_rows for table in tables["late"])
        self.outcome.replays, self.outcome.faults = self.promises.replays, self.store.faults
        self.outcome.features |= features_of(self.workload) | self.promises.features()
        return self.outcome

    def _live(self) -> bool:
        """Run one process until it ends, and check what it leaves; True if all epochs are committed."""
        self.outcome.lives += 1
        if not self.paused:
            self._maybe_reset()
        damage = self.store.rot() if not self.paused and self.store.draw_fault(self.rot_rate) else None
        # Damage is repaired when the life is over, before another process sees it.
        paused, self.life = (self.life, self.store.written), Process(pausable=damage is None)
        self.store.written = []
        done = False
        try:
            done = self._run_epochs()
        except SimulatedCrash:
            # A machine with a paused process does not lose power.
            if self.rng.random() < 0.5 and not self.paused:
                self.store.lose_power()
        except OSError as error:
            if "simulated" not in str(error):
                raise
        except CheckpointError as error:
            if self._is_fenced():
                # Either the error says that it was fenced, or a file that it needs was deleted.
                self.outcome.fenced += 1
            elif damage is not None and not isinstance(error, FencedError):
                self.outcome.refused += 1
            elif refuses_windows(error):
                self.outcome.features.add("windows refused while state is spilled")
            else:
                raise
        self._end_step(whole=False)
        self.checks.after_life(damage)
        self.life, self.store.written = paused
        return done

    def _run_epochs(self) -> bool:
        lease = self._take_lease("driver")
        self.life.query = query = self._open(lease)
        self.promises.confirm(query.manifest.epoch)
        usual, has_begun_drain = self.workload.background_epochs, False
        background = self.rng.choice((usual, usual, 0, 1, None))
        while query.manifest.batch + 1 < len(self.workload.epochs):
            self._enter_epoch(query)
            self._request_migration(query)
            self.black_boxes.maybe_ask(query, self._is_fenced)
            if self.replacements.is_asked_for():
                self._replace(query)
            if self.rescales.is_asked_for():
                self._rescale(query)
            now = wall_clock(self.rng, self.life.epoch)
            drains = self.workload.settings.memory is not None and self.rng.random() < _DRAIN_RATE
            if has_begun_drain or self.drains.is_asked_for(query):
                is_done = self.drains.run(query, now)
                has_begun_drain = False
            else:
                rows = self.workload.epochs[query.manifest.batch + 1]
                results = query.try_epoch(rows, background_epochs=background, now=now, drains=drains)
                is_done = results is not None
                has_begun_drain = not is_done
            self._end_step(whole=False)
            self.promises.confirm(query.manifest.epoch)
            if self._is_fenced() or not is_done:
                continue
            if not query.coordinator.owes(query.manifest):
                self.promises.migration_promises.settle(query.manifest.epoch)
            self.checks.after_epoch(query.manifest)
            if self.rng.random() < self.stop_rate:
                lease.release()
                return False
        lease.release()
        return True

    def _take_lease(self, run: str) -> Lease:
        """Take the lease; if its holder has not ended, it is fenced."""
        lease = seize_lease(self.store, f"{run} {self.calls}")  # no two have the same name
        self.life.lease = lease.number
        return lease

    def _open(self, lease: Lease) -> InlineJoin:
        self.life.sinks = sinks = self.replacements.sinks(lease.number)
        changes = self.rng.random() < self.change_rate
        asked = self.replacements.possible_queries()
        return InlineJoin(
            self.rng.choice(asked) if changes else asked[0],
            self.workload.plan,
            settings=self.rescales.at_start(
                changed_settings(self.workload, self.rng) if changes else self.workload.settings
            ),
            store=self.store,
            sink=sinks[0],
            new_sink=dict(enumerate(sinks)).get(1),
            late_sink=StoreSink(self.store, "late", lease.number) if self.workload.keeps_late else None,
            lease=lease,
            decider=self.decider,
        )

    def _enter_epoch(self, query: InlineJoin) -> None:
        """A driver is about to run the next epoch."""
        self.life.epoch = query.manifest.epoch + 1
        self.asked.setdefault(self.life.epoch, []).append(query.query)

    def _request_migration(self, query: InlineJoin) -> None:
        """Make the request of the workload before this epoch, if it has one; sometimes repeat one."""
        requests, epoch = {} if query.is_replacing else self.workload.requests, self.life.epoch
        repeats = requests and self.rng.random() < 0.1 * self.change_rate
        if epoch in requests and epoch not in self.requested:
            request = requests[epoch]
        elif repeats:
            request = self.rng.choice(list(requests.values()))
        else:
            return
        self.requested.add(epoch)
        self._request(query, request)

    def _maybe_ask(self) -> None:
        """While an epoch runs, another thread may make a request; if that fails, the epoch goes on."""
        query, requests = self.life.query, list(self.workload.requests.values())
        if query is None:
            return
        if requests and not query.is_replacing and self.user.random() < self.ask_rate:
            with faults_survived(self._is_fenced):
                self._request(query, self.user.choice(requests))
                self.outcome.features.add("a request while an epoch runs")
        if self.rescales.is_asked_for_meanwhile():
            with faults_survived(self._is_fenced):
                self._rescale(query)
                self.outcome.features.add("a rescale while an epoch runs")
        if self.replacements.is_asked_for_meanwhile():
            with faults_survived(self._is_fenced):
                self._replace(query)

    def _replace(self, query: InlineJoin) -> None:
        self._expect_epochs(self.life.epoch, self.life.epoch + 1)
        self.replacements.ask(query, self.life, others_paused=self.paused > 0)

    def _rescale(self, query: InlineJoin) -> None:
        self._expect_epochs(self.life.epoch, self.life.epoch + 1)
        self.rescales.ask(query, others_paused=self.paused > 0)
        check_promise("partitions", not self._is_fenced(), _CONFIRMED_BY_FENCED)

    def _request(self, query: InlineJoin, request: MigrationRequest) -> None:
        # Processes that have died or are paused may have begun epochs already, without this request.
        self._expect_epochs(self.life.epoch, self.life.epoch + 1)
        with self.promises.migration_promises.requesting(
            write_request(request), others_paused=self.paused > 0
        ):
            query.migrate(
                request.plan,
                request.strategy,
                background="auto" if request.background else "off",
                isolated=request.isolated,
            )
            check_promise("requests", not self._is_fenced(), _CONFIRMED_BY_FENCED)

    def _on_crash_point(self, point: str) -> None:
        self.outcome.points.add(point)
        match point:
            case "after the intent is written":
                self._expect_epochs(self.life.epoch)
            case "before the step":
                self.store.written.clear()
                for sink in self.life.sinks:
                    sink.staged.clear()
                self.life.in_step = True
                if not self._is_fenced():
                    self.promises.run(self.life.epoch)
            case "after the step":
                self._end_step(whole=True)
            case "after the sink prepared":
                for sink in self.life.sinks:
                    self.promises.published.check_batch(self.life.epoch, sink)
            case "after the commit":
                self.checks.after_commit()
        self._maybe_ask()
        self._maybe_read(1.0)
        self._maybe_pause(1.0)
        if self.store.draw_fault(self.crash_rate):
            self.store.faults["crashes"] += 1
            raise SimulatedCrash(point)

    def _expect_epochs(self, *epochs: int) -> None:
        """If the intent of an epoch is written, its expected results are known from now on."""
        self.replacements.note_newest()
        for epoch in epochs if not self._is_fenced() else ():
            name = intent_name(epoch)
            data = self.store.inner.files.get(name)
            if data is not None:
                self.promises.begin(decode_intent(data.to_pybytes(), name), self.asked.get(epoch, []))

    def _is_fenced(self) -> bool:
        """Whether another process has taken over from the one that runs now."""
        return self.life.lease < newest_lease(self.store)

    def _before_call(self) -> None:
        """A process is about to call the store."""
        self.calls += 1
        self.resets.note()
        check_promise("liveness", self.calls < _MAX_CALLS, f"{self.calls} calls of the store were not enough")
        self._maybe_read(_RATE_IN_CALLS)
        self._maybe_pause(_RATE_IN_CALLS)

    def _maybe_read(self, factor: float) -> None:
        if self.rng.random() < factor * self.move_rate:
            self.rng.choice(self.readers).move_away()

    def _maybe_pause(self, factor: float) -> None:
        if not self.life.pausable or self.paused >= _MAX_PAUSED:
            return
        if not self.store.draw_fault(factor * self.pause_rate):
            return
        self.store.faults["pauses"] += 1
        self.paused += 1
        if self.rng.random() < 0.3:
            self._run_command(
                "garbage collections", lambda lease: collect_garbage(self.store, lease, delete=True)
            )
        self._maybe_reset()
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            self._live()
        self.paused -= 1

    def _maybe_reset(self) -> None:
        """An operator may set a watermark back."""
        drawn = self.user.random() < self.reset_rate
        if drawn and self.resets.are_possible() and self.store.draw_fault(1.0):
            self._run_command("runs of watermark", self.resets.set_back)

    def _run_command(self, kind: str, command: Callable[[Lease], object]) -> None:
        """Run a command of ``midstream`` that needs the lease, in a process of its own."""
        paused, self.life = (self.life, self.store.written), Process()
        self.store.written = []
        self.store.faults[kind] += 1
        with suppress(SimulatedCrash), faults_survived(self._is_fenced):
            lease = self._take_lease(kind)
            command(lease)
            lease.release()
        self.resets.note()
        self.checks.after_life(None)
        self.life, self.store.written = paused

    def _end_step(self, *, whole: bool) -> None:
        in_step, self.life.in_step = self.life.in_step, False
        if in_step and not self._is_fenced():
            written = step_files(self.store.written)
            self.promises.check_replay(self.life.epoch, written, whole=whole)

    def _check_end(self) -> None:
        """Run an epoch without rows and without faults: it must delete everything that is not used."""
        self.store.stop_faults()
        self.life = Process(pausable=False)
        # Without a budget, all that is spilled comes back.
        self.change_rate = 0.0
        self.workload = replace(self.workload, settings=replace(self.workload.settings, memory=None))
        query, owes = self._open(self._take_lease("the last")), True
        while owes:
            self._enter_epoch(query)
            now = wall_clock(self.rng, self.life.epoch)
            query.run_epoch({}, background_epochs=self.workload.background_epochs, now=now)
            manifest = query.manifest
            owes = query.coordinator.owes(manifest)
            self.promises.migration_promises.add_manifest(manifest)
        self.promises.migration_promises.settle(manifest.epoch)
        self.checks.after_last_epoch(manifest)
