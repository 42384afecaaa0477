"""Whether a budget of memory is real: queries in a memory cgroup whose limit is a tenth of their state.

The system takes pages of mapped files away from a process that has too many, and reads them again when they
are needed; a process that needs more than the limit for anything else is killed. So a query without a budget
waits for the disk in each epoch, or dies. One with a budget must keep the pace that it has without a limit.

Only root can make a cgroup, and only where version 1 of them has the controller ``memory``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

CONTROLLER = Path("/sys/fs/cgroup/memory")
_EPOCH_MICROS = 1_000_000
_WARM_UP_EPOCHS = 3


@contextmanager
def memory_limit(limit: int) -> Iterator[Path]:
    """A cgroup with a limit of bytes; processes in it must have ended when the block does."""
    group = CONTROLLER / f"midstream-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a cgroup; its last process may not be quite gone yet."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"{group} is still in use")


def why_not() -> str:
    """Why no memory cgroup can be made here; empty if one can."""
    try:
        with memory_limit(1 << 30):
            return ""
    except OSError as error:
        return f"no memory cgroup can be made: {error}"


@dataclass(frozen=True)
class Load:
    """A join of two streams without a window, whose rows hardly ever meet."""

    epochs: int
    rows: int
    """Of each stream in each epoch."""
    text_bytes: int = 100
    """Of each row; the rest of it takes some 50 bytes."""
    partitions: int = 2
    budget: int | None = None
    """Bytes of active state in each engine partition."""
    drains: bool = False
    """Whether all that is owed is made in the end."""


@dataclass(frozen=True)
class Outcome:
    """What came of a load."""

    seconds: list[float]
    """The processor time of each epoch."""
    elapsed: list[float]
    """How long each epoch took."""
    state_bytes: int
    results: int
    read_bytes: int
    """What was read from the disk."""
    killed: bool
    drain: dict[str, float] | None
    """How long the drain took, its processor time, and what it has read; None if it did not end."""


def _last_quarter(times: list[float]) -> float:
    """The mean of the last epochs that there are, when most is stored."""
    last = times[-max(1, len(times) // 4) :]
    return sum(last) / max(1, len(last))


def run_within(load: Load, group: Path | None, timeout: float) -> Outcome:
    """Run a load in a process of its own, in a cgroup if one is given, until it ends or time is over."""
    with tempfile.TemporaryDirectory(prefix="midstream-limit-") as folder:
        arguments = json.dumps({"load": asdict(load), "group": group and str(group), "folder": folder})
        command = [sys.executable, "-m", "benchmarks.memory_limit", arguments]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=timeout)
            output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            output, code = late.stdout or b"", 0
    if code not in (0, -9):
        raise SystemExit(f"the load failed with {code}")
    lines = [json.loads(line) for line in output.splitlines() if line.endswith(b"}")]
    epochs, drains = (
        [line for line in lines if "state" in line],
        [line for line in lines if "state" not in line],
    )
    last = epochs[-1] if epochs else {"state": 0, "read": 0}
    return Outcome(
        [epoch["seconds"] for epoch in epochs],
        [epoch["elapsed"] for epoch in epochs],
        last["state"],
        sum(line["results"] for line in lines),
        last["read"],
        killed=code == -9,
        drain=drains[0] if drains else None,
    )


def _run(load: Load, group: str | None, folder: str) -> None:
    """Run a load in this process, and print what each epoch took."""
    from midstream.inline import InlineJoin
    from midstream.memory.settings import MemorySettings
    from midstream.protocol.settings import Settings
    from midstream.query.build import build_query
    from midstream.query.stream import ColumnRef, Stream
    from midstream.storage.local import LocalStore
    from midstream.values import Micros

    schema = pa.schema(
        [("id", pa.int64()), ("k", pa.int64()), ("text", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
    )
    streams = [Stream(name, schema, ColumnRef(name, ("ts",)), Micros(0)) for name in "ab"]
    query = build_query(streams, ["a.k = b.k"], default_window=None, select=["a.id", "a.text", "b.text"])
    memory = None if load.budget is None else MemorySettings(load.budget)
    settings = Settings(load.partitions, 128, memory=memory, max_event_time_ahead=None)
    join = InlineJoin(query, "a b", settings=settings, store=LocalStore(folder))
    text = pa.array(["x" * load.text_bytes])
    for number in range(load.epochs):
        if group is not None and number == _WARM_UP_EPOCHS:
            # What the process has in memory by now does not count: only what it takes from now on.
            Path(group, "cgroup.procs").write_text(str(os.getpid()))
        random = np.random.default_rng(number)
        arrivals = {}
        for name in "ab":
            ids = np.arange(number * load.rows, (number + 1) * load.rows)
            keys = random.integers(0, 60 * load.epochs * load.rows, load.rows)
            times = np.full(load.rows, number * _EPOCH_MICROS).view("datetime64[us]")
            texts = text.take(pa.array(np.zeros(load.rows, np.int64)))
            arrivals[name] = pa.table([ids, keys, texts, times], schema=schema)
        begin = time.process_time(), time.perf_counter()
        results = join.run_epoch(arrivals).num_rows
        seconds, elapsed = time.process_time() - begin[0], time.perf_counter() - begin[1]
        epoch = {"seconds": seconds, "elapsed": elapsed, "results": results}
        epoch |= {"state": sum(s.bytes for s in join.manifest.slices), "read": _bytes_read()}
        print(json.dumps(epoch), flush=True)
    if load.drains:
        begin, read = (time.process_time(), time.perf_counter()), _bytes_read()
        results = join.drain().num_rows
        seconds, elapsed = time.process_time() - begin[0], time.perf_counter() - begin[1]
        drain = {"seconds": seconds, "elapsed": elapsed, "results": results, "read": _bytes_read() - read}
        print(json.dumps(drain), flush=True)


def _bytes_read() -> int:
    """What this process has read from the disk so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


LOAD = Load(epochs=60, rows=4_000, text_bytes=1_000)


def run(console: Console) -> dict[str, Any]:
    """The same load with and without a limit and a budget, as a table."""
    problem = why_not()
    if problem:
        console.print(f"The memory limit is left out: {problem}")
        return {}
    free = run_within(LOAD, None, 120)
    limit = free.state_bytes // 10
    budget = limit // (3 * LOAD.partitions)
    within = replace(LOAD, budget=budget, drains=True)
    runs = {"no limit, no budget": free}
    runs["no limit, budget"] = run_within(within, None, 120)
    for name, load in (("limit, budget", within), ("limit, no budget", LOAD)):
        with memory_limit(limit) as group:
            runs[name] = run_within(load, group, 120)
    table = Table(title=f"{free.state_bytes / 1e6:,.0f} MB of state within {limit / 1e6:,.0f} MB of memory")
    columns = ("", "epochs", "time", "processor time", "an epoch of the last quarter", "read from disk")
    for column in (*columns, "the drain", "read by it", "results"):
        table.add_column(column, justify="right" if column else "left")
    for name, outcome in runs.items():
        table.add_row(
            name,
            f"{len(outcome.seconds)}{', killed' if outcome.killed else ''}",
            f"{sum(outcome.elapsed):.1f} s",
            f"{sum(outcome.seconds):.1f} s",
            ", ".join(f"{1000 * _last_quarter(t):,.0f} ms" for t in (outcome.elapsed, outcome.seconds)),
            f"{outcome.read_bytes / 1e6:,.0f} MB",
            f"{outcome.drain['seconds']:.1f} s" if outcome.drain else "",
            f"{outcome.drain['read'] / 1e6:,.0f} MB" if outcome.drain else "",
            f"{outcome.results:,}",
        )
    console.print(table)
    if len({outcome.results for outcome in runs.values() if not outcome.killed}) > 1:
        raise SystemExit("the results depend on the budget")
    return {name: asdict(outcome) for name, outcome in runs.items()}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    _run(Load(**given["load"]), given["group"], given["folder"])
