"""Ten thousand ways to damage a checkpoint: a restarted query refuses it, or goes back by an epoch.

Never may it read anything else than was written, and nothing may come out of it but a CheckpointError.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import manifest_files, manifest_name, read_manifest, restore_manifest
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import SliceFiles
from midstream.storage.store import Store
from midstream.testing import Shape, assert_same_rows, generate, stream
from midstream.values import Micros

SETTINGS = Settings(1, 4)
CASES = {"flip": 6500, "cut": 2000, "garbage": 500, "empty": 250, "delete": 250, "older": 250, "swap": 250}
"""What is done to a file, and how often."""

Files = dict[str, pa.Buffer]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that a real query has made, and what it is known to have."""

    query: Query
    epochs: list[dict[str, pa.Table]]
    """What the query was given, and one epoch more."""
    results: list[pa.Table]
    files: Files
    before: Manifest
    newest: Manifest
    slices: dict[str, pa.Table]
    """The slices of both manifests, by name."""

    def needs(self, name: str) -> bool:
        """Whether a query cannot go on from the newest manifest without a file."""
        slices = {f"slices/{slice_.name}" for slice_ in self.newest.slices}
        return name in slices | {manifest_name(self.newest.lease, self.newest.epoch)}


def make(names: str, count: int) -> Checkpoint:
    shape = Shape(rows=6, late=0.1, null_keys=0.05)
    on = [f"{a}.k = {b}.k" for a, b in pairwise(names)]
    query = build_query([stream(name, shape) for name in names], on, default_window=Micros(30_000_000))
    epochs = generate(dict.fromkeys(names, shape), count + 1, seed=count)
    store = MemoryStore()
    join = InlineJoin(query, settings=SETTINGS, store=store)
    results = [join.run_epoch(epoch) for epoch in epochs[:-1]]
    files = dict(store.files)
    results.append(join.run_epoch(epochs[-1]))
    there = MemoryStore(files)
    before, newest = (read_manifest(there, name).manifest for name in manifest_files(there)[-2:])
    named = {s.name for s in (*before.slices, *newest.slices)}
    slices = {name: pa.ipc.open_file(there.read(f"slices/{name}")).read_all() for name in named}
    return Checkpoint(query, epochs, results, files, before, newest, slices)


# After four epochs slices have just been merged, so that few are in use and some are retired.
CHECKPOINTS = [make("ab", 2), make("ab", 4), make("abc", 4)]


@pytest.fixture(autouse=True)
def _quiet(caplog) -> Iterator[None]:
    """Going back by an epoch is worth a warning, but not a thousand."""
    with caplog.at_level(logging.ERROR, logger="midstream"):
        yield


def damage(rng: random.Random, how: str, checkpoint: Checkpoint) -> tuple[Files, bool]:
    """The files of a checkpoint after something was done to them, and whether one that is needed was hit."""
    files = dict(checkpoint.files)
    manifests = how == "older" or rng.random() < 0.3
    names = sorted(name for name in files if name.startswith("manifests/" if manifests else "slices/"))
    name = rng.choice(names[1:] if how == "older" else names)
    if rng.random() < 0.8:
        name = rng.choice([name for name in names if checkpoint.needs(name)])
    other = names[names.index(name) - 1]
    data = bytearray(files[name].to_pybytes())
    place = rng.randrange(len(data))
    match how:
        case "flip":
            data[place] ^= 1 << rng.randrange(8)
        case "cut":
            del data[place:]
        case "garbage":
            # A byte more, so that it is never what was there.
            data[place : place + rng.randint(0, 40)] = rng.randbytes(41)
        case "empty":
            data.clear()
        case "older":
            data[:] = files[other].to_pybytes()
        case "swap":
            data[:], files[other] = files[other].to_pybytes(), files[name]
    files[name] = pa.py_buffer(bytes(data))
    if how == "delete":
        del files[name]
    return files, checkpoint.needs(name) or (how == "swap" and checkpoint.needs(other))


def outcome(checkpoint: Checkpoint, store: Store) -> str:
    """What becomes of a query that is started again and reads every slice that it goes on from."""
    try:
        stored = restore_manifest(store, 2)
        files = SliceFiles(store)
        for slice_ in stored.manifest.slices if stored else ():
            read = files.open(slice_)
            if not read.equals(checkpoint.slices[slice_.name], check_metadata=True):
                return "wrong slice"
    except CheckpointError:
        return "refused"
    known = {checkpoint.newest.epoch: checkpoint.newest, checkpoint.before.epoch: checkpoint.before}
    if stored is None or stored.manifest != known.get(stored.manifest.epoch):
        return "wrong manifest"
    return "goes on" if stored.manifest == checkpoint.newest else "goes back"


@pytest.mark.slow
def test_no_damage_is_read_as_data():
    rng = random.Random(1)
    found: Counter[tuple[bool, str]] = Counter()
    for how, times in CASES.items():
        for _ in range(times):
            checkpoint = rng.choice(CHECKPOINTS)
            files, needed = damage(rng, how, checkpoint)
            found[needed, outcome(checkpoint, MemoryStore(files))] += 1
    assert found.total() == sum(CASES.values()) == 10_000
    assert set(found) == {(True, "refused"), (True, "goes back"), (False, "goes on")}, found
    assert found[True, "refused"] > 5000
    assert found[True, "goes back"] > 1500


@pytest.mark.parametrize("how", CASES)
def test_a_query_on_a_damaged_disk_is_refused_or_gives_the_same_results(how, tmp_path):
    rng = random.Random(2)
    ended: Counter[bool] = Counter()
    for number in range(20):
        checkpoint = rng.choice(CHECKPOINTS)
        files, _ = damage(rng, how, checkpoint)
        root = tmp_path / str(number)
        for name, data in files.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        ended[_goes_on(checkpoint, LocalStore(str(root)))] += 1
    assert ended[True] > 0, "nothing was gone on from"
    assert ended[False] > 0 or how == "older", "nothing was refused"


def _goes_on(checkpoint: Checkpoint, store: LocalStore) -> bool:
    try:
        join = InlineJoin(checkpoint.query, settings=SETTINGS, store=store)
        while join.manifest.epoch + 1 < len(checkpoint.epochs):
            number = join.manifest.epoch + 1
            assert_same_rows(join.run_epoch(checkpoint.epochs[number]), checkpoint.results[number])
    except CheckpointError:
        return False
    assert join.manifest.results == sum(table.num_rows for table in checkpoint.results)
    return True
