"""The simulator: the production core in one process, over a store that fails, under a seed.

A seed draws a query, streams with everything that streams do wrong, a plan, options, and faults: crashes at
named points, crashes of the machine that lose what was not synced, errors of the store at any call, bits
that flip at rest. The query is started again and again until all epochs are through; then the faults stop.
What must hold, whatever happened:

- *final*: the published results are those of the batch join of all accepted rows, as a multiset;
- *prefix*: after every life, they are those of the rows up to the last committed epoch;
- *replay*: an epoch that is run again writes the same slices;
- *fsck*: the checkpoint that is left has nothing wrong with it;
- *conservation*: every row is accounted for as accepted, late, without a time or without a key;
- *no silent damage*: a flipped bit is refused, never read as data.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.plan.tree import Plan, join, leaf
from midstream.protocol.settings import Settings
from midstream.query.query import Query, build_query
from midstream.storage.crash import POINTS, crash_hook
from midstream.storage.fsck import check
from midstream.testing.compare import assert_same_rows
from midstream.testing.faults import FaultStore, SimulatedCrash, StoreSink
from midstream.testing.oracle import batch_join
from midstream.testing.reference import accept
from midstream.testing.streams import SECOND, Shape, generate, stream
from midstream.values import Micros

_MOST_LIVES = 400


@dataclass
class Outcome:
    """What happened under a seed."""

    seed: int
    about: str
    results: int = 0
    lives: int = 0
    crashes: int = 0
    errors: int = 0
    rotten: int = 0
    points: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.about}; {self.results} results in {self.lives} lives, "
            f"{self.crashes} crashes, {self.errors} errors, {self.rotten} flipped bits found"
        )


@dataclass(frozen=True)
class Damage:
    """A file in which a bit was flipped: its bytes before and after."""

    name: str
    before: pa.Buffer
    after: pa.Buffer


def simulate(seed: int) -> Outcome:
    """Run one seed; an AssertionError says which promise was broken."""
    return _Simulation(seed).run()


class _Simulation:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  # chance that repeats is the point
        names = "abcdef"[: self.random.randint(2, 5)]
        self.query = _query(self.random, names)
        self.plan = _plan(self.random, list(names))
        self.settings = Settings(self.random.randint(1, 3), self.random.choice((3, 8, 16)))
        shapes = {name: _shape(self.random) for name in names}
        self.epochs = generate(shapes, self.random.randint(5, 14), seed)
        self.store = FaultStore(self.random, self.random.choice((0.0, 0.0, 0.003, 0.01)))
        self.sink = StoreSink(self.store)
        self.crash_rate = self.random.choice((0.0, 0.005, 0.02, 0.05))
        self.rot_rate = self.random.choice((0.0, 0.0, 0.1))
        self.slices: dict[int, set[str]] = {}
        self.wanted: dict[int, pa.Table] = {}
        self.outcome = Outcome(seed, f"{self.plan} over {len(self.epochs)} epochs")

    def run(self) -> Outcome:
        while True:
            self.outcome.lives += 1
            done = self._live()
            self.store.error_rate, before = 0.0, self.store.error_rate
            self._check_prefix()
            self.store.error_rate = before
            if done:
                break
            if self.outcome.lives > _MOST_LIVES:
                # Liveness: the faults stop, and what is left must run through.
                self.store.error_rate = self.crash_rate = self.rot_rate = 0.0
        self.outcome.errors = self.store.errors
        self._check_end()
        return self.outcome

    def _live(self) -> bool:
        """One life of the process; True if all epochs are through."""
        damage = self._rot()
        try:
            with crash_hook(self._may_crash):
                query = self._open()
                while query.manifest.epoch + 1 < len(self.epochs):
                    number = query.manifest.epoch + 1
                    query.epoch(self.epochs[number])
                    self._check_replay(number, query)
            return True
        except SimulatedCrash:
            self.outcome.crashes += 1
            if self.random.random() < 0.5:
                self.store.lose_power()
        except OSError as error:
            if "simulated" not in str(error):
                raise
        except CheckpointError:
            if damage is None:
                raise
        finally:
            if damage is not None:
                self._repair(damage)
        return False

    def _open(self) -> InlineJoin:
        return InlineJoin(self.query, self.plan, settings=self.settings, store=self.store, sink=self.sink)

    def _may_crash(self, point: str) -> None:
        self.outcome.points.add(point)
        if self.random.random() < self.crash_rate:
            raise SimulatedCrash(point)

    def _rot(self) -> Damage | None:
        """Flip a bit while nobody runs. The life that follows must refuse it, or never have needed it."""
        if self.outcome.lives < 2 or self.random.random() >= self.rot_rate:
            return None
        saved = dict(self.store.inner.files)
        if not any(name.startswith("slices/") for name in saved):
            return None
        name = self.store.rot()
        return Damage(name, saved[name], self.store.inner.files[name])

    def _repair(self, damage: Damage) -> None:
        """As somebody would from a copy, unless the query has done without the file, or written it anew."""
        files = self.store.inner.files
        if damage.name in files and files[damage.name] == damage.after:
            self.store.inner.put(damage.name, damage.before)
        self.outcome.rotten += 1

    def _check_replay(self, epoch: int, query: InlineJoin) -> None:
        names = {slice_.name for slice_ in query.report.slices}
        assert self.slices.setdefault(epoch, names) == names, (
            f"epoch {epoch} wrote other slices when run again"
        )

    def _check_prefix(self) -> None:
        findings = check(self.store)
        assert not findings.problems, findings.problems
        committed = findings.epoch if findings.epoch is not None else -1
        if not self._is_published(committed):
            committed -= 1
        self._check_results(committed)

    def _is_published(self, epoch: int) -> bool:
        """Whether publishing was finished: cut off, it leaves some of the last epoch's files staged."""
        return epoch < 0 or f"published/{epoch:012d}" in self.store.inner.files

    def _check_results(self, last: int) -> None:
        if last not in self.wanted:
            taken = accept(self.query, self.epochs[: last + 1])
            self.wanted[last] = batch_join(self.query, taken.tables(self.query))
        want = self.wanted[last]
        got = self.sink.published(self.query.output_schema, last)
        assert_same_rows(got, want, f"results up to epoch {last}")
        self.outcome.results = want.num_rows

    def _check_end(self) -> None:
        query = InlineJoin(self.query, settings=self.settings, store=self.store.inner)
        self._check_results(len(self.epochs) - 1)
        _check_conservation(self.query, self.epochs, query)


def _check_conservation(query: Query, epochs: list[dict[str, pa.Table]], run: InlineJoin) -> None:
    fates = accept(query, epochs).fates
    for name, mark in run.manifest.streams.items():
        given = sum(epoch[name].num_rows for epoch in epochs if name in epoch)
        assert mark.rows == given, f"{name}: {given} rows were given, {mark.rows} are accounted for"
        fate = fates[name]
        found = (mark.late, mark.null_time, mark.null_key, mark.latest, mark.watermark)
        assert found == (fate.late, fate.null_time, fate.null_key, fate.latest, fate.watermark), name


def _query(rng: random.Random, names: str) -> Query:
    graph = rng.choice(("chain", "star", "two keys", "cycle"))
    if graph == "star":
        predicates = [f"{names[0]}.k = {name}.k" for name in names[1:]]
    else:
        keys = ("k", "k2") if graph == "two keys" else ("k",)
        predicates = [f"{a}.{rng.choice(keys)} = {b}.{{}}" for a, b in pairwise(names)]
        predicates = [text.format(text.split(".")[1].split(" ")[0]) for text in predicates]
    if graph == "cycle":
        predicates.append(f"{names[0]}.k2 = {names[-1]}.k2")
    if rng.random() < 0.4:
        predicates.append(f"{names[0]}.v < {names[-1]}.v")
    pairs: Mapping[tuple[str, str], Micros] = {}
    if rng.random() < 0.3:
        pairs = {(names[0], names[1]): Micros(rng.randint(1, 10) * SECOND)}
    everywhere = Micros(rng.randint(3, 25) * SECOND)
    streams = [stream(name, Shape(lateness=Micros(rng.choice((0, 2, 5)) * SECOND))) for name in names]
    items = [f"{name}.id" for name in names]
    return build_query(streams, predicates, everywhere=everywhere, pairs=pairs, select=items)


def _plan(rng: random.Random, names: list[str]) -> Plan:
    if len(names) == 1:
        return leaf(names[0])
    rng.shuffle(names)
    parts = rng.randint(2, len(names))
    cuts = sorted(rng.sample(range(1, len(names)), parts - 1))
    pieces = [names[a:b] for a, b in pairwise([0, *cuts, len(names)])]
    return join(*(_plan(rng, piece) for piece in pieces))


def _shape(rng: random.Random) -> Shape:
    return Shape(
        rows=rng.randint(3, 14),
        keys=rng.randint(3, 8),
        hot=rng.choice((0.0, 0.0, 0.3)),
        late=rng.choice((0.0, 0.1)),
        null_keys=rng.choice((0.0, 0.1)),
        null_times=rng.choice((0.0, 0.05)),
        duplicates=rng.choice((0.0, 0.1)),
        silent=frozenset(rng.sample(range(14), rng.choice((0, 0, 3)))),
    )


def never_reached(outcomes: list[Outcome]) -> set[str]:
    """Crash points that no simulation came to."""
    return set(POINTS) - {point for outcome in outcomes for point in outcome.points}
