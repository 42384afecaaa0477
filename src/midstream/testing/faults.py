"""A store that fails as disks, machines and object stores do, within what a store may do to its users.

What a store guarantees is in :mod:`midstream.storage.store`; everything that is not guaranteed there happens
here sooner or later:

- *errors*: a call raises *no space* or *I/O error*, before or after it has had its effect;
- *full or read-only disks*: for a while, every call that writes fails;
- *death*: the process ends in the middle of a call; a write leaves part of its bytes, under a temporary name;
- *power cuts*: what was done to a name since its folder was last synced is lost, each name by itself. The
  bytes of a file are never torn: they reach the disk before their name does;
- *lost answers*: ``put_if_absent`` did write the file, and says that the name was taken;
- *late listings*: a folder that need not be listed as it is does not show a new file yet, or still shows
  one that was deleted. Reading by name is never late;
- *rot*: while nobody runs, a file loses a bit or its end.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import pyarrow as pa

from midstream.storage.memory import MemoryStore
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.store import TEMPORARY

T = TypeVar("T")
Content: TypeAlias = pa.Buffer | None
"""What a name has: bytes, or None where there is no such file."""

STAGED = "staged"
MOST_REFUSED = 4
"""For how many calls a disk is full or read-only at most."""
LISTED_LATE = (SLICES, TEMPORARY, STAGED)
"""Folders that are listed only to clean up: what is missed this time is found the next."""


class SimulatedCrash(BaseException):
    """The process dies here. No handler for ordinary errors may survive it."""


@dataclass(frozen=True)
class Damage:
    """A file that has rotted: its bytes before and after."""

    name: str
    before: pa.Buffer
    after: pa.Buffer


@dataclass
class FaultStore:
    """Files in memory. Rates are chances per call; there are no more than ``budget`` faults in all."""

    random: random.Random
    budget: int = 0
    error_rate: float = 0.0
    death_rate: float = 0.0
    late_rate: float = 0.0
    full_rate: float = 0.0
    on_call: Callable[[], None] = lambda: None
    """Called before each call has its effect: here a process may be paused."""
    listed_late: tuple[str, ...] = LISTED_LATE
    inner: MemoryStore = field(default_factory=MemoryStore)
    faults: Counter[str] = field(default_factory=Counter)
    """How often each kind of fault has happened."""
    written: list[tuple[str, pa.Buffer]] = field(default_factory=list)
    """What was put, in order, since somebody last cleared this."""
    _refused: tuple[int, int] = (0, 0)
    """How many more calls that write fail, and with which error."""
    _unsynced: dict[str, list[Content]] = field(default_factory=dict)
    """What each name had before each change since its folder was last synced."""
    _lagging: dict[str, int] = field(default_factory=dict)
    """Names whose last change listings do not show yet, and how many more times."""

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Write a file; its name lasts only after :meth:`sync`."""
        self._call(name, lambda: self._put(name, data), data)

    def rename(self, name: str, other: str) -> None:
        """Give a file another name, in one operation that lasts; if there is no such file, do nothing."""
        self._call(name, lambda: self._rename(name, other), b"")

    def sync(self, folder: str) -> None:
        """Make the names of a folder last."""
        self._call(folder, lambda: self._sync(folder))

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Write a file for good unless the name is taken."""

        def put() -> bool:
            if name in self.inner.files:
                return False
            self._put(name, data)
            return True

        # If this fails after the effect, the name is there and need not last.
        free = self._call(name, put, data)
        if free:
            self._unsynced.pop(name, None)
        # There are few such calls, and each is a commit: more of them than of others go wrong.
        if free and self.strikes(5 * self.error_rate):
            self.faults["lost answers"] += 1
            return False
        return free

    def read(self, name: str) -> pa.Buffer:
        """The bytes of a name."""
        return self._call(name, lambda: self.inner.read(name))

    def list(self, folder: str) -> list[str]:
        """The names in a folder, some of them as they were a while ago where that is allowed."""
        return sorted(self._call(folder, lambda: self._shown(folder)))

    def delete(self, name: str) -> None:
        """Forget a name; it may come back after a power cut."""
        self._call(name, lambda: self._change(name, None))

    def strikes(self, rate: float) -> bool:
        """Whether a fault happens now."""
        struck = self.budget > 0 and self.random.random() < rate
        self.budget -= struck
        return struck

    def lose_power(self) -> None:
        """The machine goes down: each unsynced name has something that it had since its folder was synced."""
        self.faults["power cuts"] += 1
        for name, past in sorted(self._unsynced.items()):
            self._set(name, self.random.choice([*past, self.inner.files.get(name)]))
        self._unsynced.clear()

    def lasts(self, name: str) -> bool:
        """Whether a power cut leaves a file as it is."""
        return name not in self._unsynced

    def calm(self) -> None:
        """No more faults, and listings show everything."""
        self.budget = 0
        self._refused = (0, 0)
        self._lagging.clear()

    def rot(self) -> Damage | None:
        """Damage a file at rest whose bytes are checked, if there is one."""
        kinds = ("slices/", "manifests/", "intents/", "published/")
        # An empty file has nothing in it that could be damaged.
        names = [n for n in sorted(self.inner.files) if n.startswith(kinds) and self.inner.files[n].size]
        if not names:
            return None
        self.faults["rotten files"] += 1
        name = self.random.choice(names)
        if newest := [n for n in names if n.startswith("manifests/")]:
            # The newest manifest is what everything hangs on.
            name = self.random.choice((name, name, newest[-1]))
        before = self.inner.files[name]
        data = bytearray(before.to_pybytes())
        position = self.random.randrange(len(data))
        if self.random.random() < 0.2:
            del data[position:]
        else:
            data[position] ^= 1 << self.random.randrange(8)
        self.inner.put(name, bytes(data))
        return Damage(name, before, self.inner.files[name])

    def repair(self, damage: Damage) -> None:
        """As somebody would from a copy, unless the file was done without or written anew."""
        if damage.name in self.inner.files and self.inner.files[damage.name] == damage.after:
            self.inner.put(damage.name, damage.before)

    def _call(self, name: str, effect: Callable[[], T], writes: pa.Buffer | bytes | None = None) -> T:
        """A call of the store, which may fail before or after it has had its effect."""
        self.on_call()
        if writes is not None and self.strikes(self.full_rate):
            kind, code = self.random.choice((("full disks", errno.ENOSPC), ("read-only disks", errno.EROFS)))
            self.faults[kind] += 1
            self._refused = (self.random.randint(1, MOST_REFUSED), code)
        if writes is not None and self._refused[0]:
            left, code = self._refused
            self._refused = (left - 1, code)
            raise OSError(code, "simulated", name)
        dies = self.strikes(self.death_rate)
        fails = dies or self.strikes(self.error_rate)
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
        """A write that was cut off leaves a part of its bytes, but not under the name that it was to have."""
        whole = pa.py_buffer(data)
        # Sizes may depend on the process that runs this; how much chance is drawn must not.
        part = whole.slice(0, int(whole.size * self.random.random()))
        self._put(f"{TEMPORARY}/{self.random.getrandbits(64):016x}", part)
        self.faults["torn writes"] += 1

    def _put(self, name: str, data: pa.Buffer | bytes) -> None:
        buffer = pa.py_buffer(data)
        self._change(name, buffer)
        self.written.append((name, buffer))

    def _change(self, name: str, content: Content) -> None:
        self._unsynced.setdefault(name, []).append(self.inner.files.get(name))
        there = name in self.inner.files
        self._set(name, content)
        late = _folder(name) in self.listed_late and there != (content is not None)
        if late and self.strikes(self.late_rate):
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
        self._unsynced = {n: past for n, past in self._unsynced.items() if _folder(n) != folder}

    def _shown(self, folder: str) -> set[str]:
        names = set(self.inner.list(folder))
        for name in [n for n in self._lagging if _folder(n) == folder]:
            names ^= {name}
            self._lagging[name] -= 1
            if not self._lagging[name]:
                del self._lagging[name]
        return names


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
