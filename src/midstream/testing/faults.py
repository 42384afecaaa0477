"""A store with injected faults: those of disks, machines and object stores.

:mod:`midstream.storage.store` says what a store guarantees; everything else happens here sooner or later:

- *errors*: a call raises *no space* or *I/O error*, before or after it has had its effect;
- *full or read-only disks*: for a while, every call that writes fails;
- *death*: the process ends in the middle of a call; a write leaves part of its bytes, under a temporary name;
- *power cuts*: changes of names since their folder was last synced are lost, of each name independently. The
  bytes of a file are never torn: they reach the disk before their name does;
- *lost answers*: ``put_if_absent`` did write the file, but returns that the name was taken;
- *late listings*: a folder whose listings need not be consistent does not show a new file yet, or still shows
  one that was deleted. Reading by name is never late;
- *rot*: while no process runs, a file loses a bit or its end.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.store import TEMPORARY

T = TypeVar("T")
Content: TypeAlias = pa.Buffer | None
"""The bytes of a file, or None if there is no such file."""

STAGED = "staged"
MAX_REFUSED_CALLS = 4
"""For how many calls a disk is full or read-only at most."""
LISTED_LATE = (SLICES, TEMPORARY, STAGED)
"""Folders whose listings may be late: they are listed only to clean up."""


class SimulatedCrash(BaseException):
    """The process dies here. It is no ``Exception``, so that no handler of errors catches it."""


@contextmanager
def faults_survived(is_fenced: Callable[[], bool]) -> Iterator[None]:
    """What may fail by a fault, or because another driver has taken over, without the query ending."""
    try:
        yield
    except OSError as error:
        if "simulated" not in str(error):
            raise
    except CheckpointError:
        if not is_fenced():
            raise


@dataclass(frozen=True)
class Damage:
    """A file that has rotted: its bytes before and after."""

    name: str
    before: pa.Buffer
    after: pa.Buffer


@dataclass
class FaultStore:
    """Files in memory. Rates are probabilities per call; there are at most ``budget`` faults in all."""

    random: random.Random
    budget: int = 0
    error_rate: float = 0.0
    death_rate: float = 0.0
    late_rate: float = 0.0
    full_rate: float = 0.0
    on_call: Callable[[], None] = lambda: None
    """Called before each call has its effect; the simulator pauses processes in it."""
    listed_late: tuple[str, ...] = LISTED_LATE
    inner: MemoryStore = field(default_factory=MemoryStore)
    faults: Counter[str] = field(default_factory=Counter)
    """How often each kind of fault has happened."""
    written: list[tuple[str, pa.Buffer]] = field(default_factory=list)
    """The files that were put, in order; callers may clear it."""
    _refused: tuple[int, int] = (0, 0)
    """How many more writing calls fail, and with which error."""
    _unsynced: dict[str, list[Content]] = field(default_factory=dict)
    """The contents of each name before each of its changes since its folder was last synced."""
    _lagging: dict[str, int] = field(default_factory=dict)
    """Names whose last change is not listed yet, and for how many more listings."""

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a file; it is durable only after :meth:`sync`."""
        self._call(name, lambda: self._put(name, data), data)

    def put_all(self, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Write files, each in a call that may fail by itself."""
        for name, data in files.items():
            self.put(name, data)

    def rename(self, name: str, other: str) -> None:
        """Give a file another name, atomically and durably; if there is no such file, do nothing."""
        self._call(name, lambda: self._rename(name, other), b"")

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        self._call(folder, lambda: self._sync(folder))

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write a file durably unless the name is taken."""

        def put() -> bool:
            if name in self.inner.files:
                return False
            self._put(name, data)
            return True

        # If this fails after the effect, the file exists but is not durable.
        was_free = self._call(name, put, data)
        if was_free:
            self._unsynced.pop(name, None)
        # There are few such calls, and commits depend on them: so more of them fail than of others.
        if was_free and self.draw_fault(5 * self.error_rate):
            self.faults["lost answers"] += 1
            return False
        return was_free

    def read(self, name: str, *, sparsely: bool = False) -> pa.Buffer:
        """The bytes of a name."""
        return self._call(name, lambda: self.inner.read(name, sparsely=sparsely))

    def list(self, folder: str) -> list[str]:
        """The names in a folder; where that is allowed, some changes are not listed yet."""
        return sorted(self._call(folder, lambda: self._listed(folder)))

    def delete(self, name: str) -> None:
        """Delete a file; it may be back after a power cut."""
        self._call(name, lambda: self._change(name, None))

    def draw_fault(self, rate: float) -> bool:
        """Whether a fault happens now."""
        struck = self.budget > 0 and self.random.random() < rate
        self.budget -= struck
        return struck

    def lose_power(self) -> None:
        """The machine goes down: each unsynced name has one of its contents since its folder was synced."""
        self.faults["power cuts"] += 1
        for name, earlier in sorted(self._unsynced.items()):
            self._set(name, self.random.choice([*earlier, self.inner.files.get(name)]))
        self._unsynced.clear()

    def is_durable(self, name: str) -> bool:
        """Whether a power cut leaves a file as it is."""
        return name not in self._unsynced

    def make_durable(self, folder: str) -> None:
        """Make the names in a folder durable, without a call of the store."""
        self._sync(folder)

    def stop_faults(self) -> None:
        """No more faults, and listings show everything."""
        self.budget = 0
        self._refused = (0, 0)
        self._lagging.clear()

    def rot(self) -> Damage | None:
        """Damage a file at rest whose bytes are checked, if there is one."""
        kinds = ("slices/", "manifests/", "intents/", "published/")
        # An empty file cannot be damaged.
        names = [n for n in sorted(self.inner.files) if n.startswith(kinds) and self.inner.files[n].size]
        if not names:
            return None
        self.faults["rotten files"] += 1
        name = self.random.choice(names)
        if newest := [n for n in names if n.startswith("manifests/")]:
            # More often the newest manifest, as everything depends on it.
            name = self.random.choice((name, name, newest[-1]))
        before = self.inner.files[name]
        data = bytearray(before.to_pybytes())
        # As for a torn write: a file with measured times may have another size in another run of the seed.
        position = int(len(data) * self.random.random())
        if self.random.random() < 0.2:
            del data[position:]
        else:
            data[position] ^= 1 << self.random.randrange(8)
        self.inner.put(name, bytes(data))
        return Damage(name, before, self.inner.files[name])

    def repair(self, damage: Damage) -> None:
        """Restore a damaged file, as from a copy, unless it was deleted or written again since."""
        if damage.name in self.inner.files and self.inner.files[damage.name] == damage.after:
            self.inner.put(damage.name, damage.before)

    def _call(self, name: str, effect: Callable[[], T], writes: pa.Buffer | bytes | None = None) -> T:
        """A call of the store, which may fail before or after it has had its effect."""
        self.on_call()
        if writes is not None and self.draw_fault(self.full_rate):
            kind, code = self.random.choice((("full disks", errno.ENOSPC), ("read-only disks", errno.EROFS)))
            self.faults[kind] += 1
            self._refused = (self.random.randint(1, MAX_REFUSED_CALLS), code)
        if writes is not None and self._refused[0]:
            left, code = self._refused
            self._refused = (left - 1, code)
            raise OSError(code, "simulated", name)
        dies = self.draw_fault(self.death_rate)
        fails = dies or self.draw_fault(self.error_rate)
        before = self.random.random() < 0.5
        if fails and before:
            if writes is not None:
                self._tear(writes)
            raise self._fault(name, dies)
        done = effect()
        if fails:
            raise self._fault(name, dies)
        return done

    def _fault(self, name: str, dies: bool) -> BaseException:
        self.faults["deaths in a call" if dies else "errors"] += 1
        code = self.random.choice((errno.ENOSPC, errno.EIO))
        return SimulatedCrash(name) if dies else OSError(code, "simulated", name)

    def _tear(self, data: pa.Buffer | bytes) -> None:
        """An interrupted write leaves a part of its bytes under a temporary name."""
        whole = pa.py_buffer(data)
        # Sizes may differ between runs of a seed; how many random numbers are drawn must not.
        part = whole.slice(0, int(whole.size * self.random.random()))
        self._put(f"{TEMPORARY}/{self.random.getrandbits(64):016x}", part)
        self.faults["torn writes"] += 1

    def _put(self, name: str, data: pa.Buffer | bytes) -> None:
        buffer = pa.py_buffer(data)
        self._change(name, buffer)
        self.written.append((name, buffer))

    def _change(self, name: str, content: Content) -> None:
        self._unsynced.setdefault(name, []).append(self.inner.files.get(name))
        existed = name in self.inner.files
        self._set(name, content)
        may_lag = _folder(name) in self.listed_late and existed != (content is not None)
        if may_lag and self.draw_fault(self.late_rate):
            self.faults["late listings"] += 1
            self._lagging[name] = self.random.randint(1, 3)

    def _rename(self, name: str, other: str) -> None:
        if name in self.inner.files:
            self._set(other, self.inner.files[name])
            self._set(name, None)
            self._unsynced.pop(name, None)
            self._unsynced.pop(other, None)

    def _set(self, name: str, content: Content) -> None:
        if content is None:
            self.inner.delete(name)
        else:
            self.inner.put(name, content)

    def _sync(self, folder: str) -> None:
        self._unsynced = {n: earlier for n, earlier in self._unsynced.items() if _folder(n) != folder}

    def _listed(self, folder: str) -> set[str]:
        names = set(self.inner.list(folder))
        for name in [n for n in self._lagging if _folder(n) == folder]:
            names ^= {name}
            self._lagging[name] -= 1
            if not self._lagging[name]:
                del self._lagging[name]
        return names


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
