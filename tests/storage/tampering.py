"""Changes to a checkpoint by somebody who makes digests fit, and going on from it afterwards."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.small_case import EPOCHS, QUERY, SETTINGS

Change = Callable[[dict[str, Any]], object]
"""What is done to the newest manifest."""


def go_on(checkpoint: Path) -> None:
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(checkpoint)))
    query.run_epoch(EPOCHS[3])


def tamper(checkpoint: Path, change: Change) -> None:
    path = sorted((checkpoint / "manifests").glob("*.json"))[-1]
    manifest = json.loads(path.read_text())["manifest"]
    change(manifest)
    body = json.dumps(manifest, separators=(",", ":"))
    path.write_text(f'{{"sha256":"{hashlib.sha256(body.encode()).hexdigest()}","manifest":{body}}}')


def manifests(checkpoint: Path) -> list[Path]:
    return sorted((checkpoint / "manifests").glob("*.json"))


def files_with_problems(checkpoint: Path) -> set[str]:
    return {problem.file for problem in fsck(LocalStore(str(checkpoint))).problems}


def in_a_process(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, str(folder)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120, check=False)


def replace_slices(checkpoint: Path, kind: str, change: Callable[[bytes], bytes | None], **more: Any) -> int:
    """Change the slices of a kind, and the newest manifest so that their names and digests fit."""
    changed = 0

    def fit(manifest: dict[str, Any]) -> None:
        nonlocal changed
        for slice_ in manifest["slices"]:
            path = checkpoint / "slices" / slice_["name"]
            if slice_["owner"]["kind"] != kind or (data := change(path.read_bytes())) is None:
                continue
            digest = hashlib.sha256(data).hexdigest()
            name = f"{slice_['name'].partition('-')[0]}-{digest}.arrow"
            path.with_name(name).write_bytes(data)
            slice_.update(name=name, sha256=digest, bytes=len(data), **more)
            changed += 1

    tamper(checkpoint, fit)
    for path in sorted((checkpoint / "manifests").glob("*.json"))[:-1]:
        path.unlink()
    return changed


def far_offsets(data: bytes) -> bytes | None:
    """The offsets of a column of text, so that its first value ends far behind the file."""
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all().combine_chunks()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.type == pa.string() and len(column):
            text = pa.array(["v" * 1237, *[""] * (len(column) - 1)])
            good = _written(table.set_column(table.column_names.index(name), name, text))
            offsets = np.full(len(column) + 1, 1237, "<i4")
            offsets[0] = 0
            assert offsets.tobytes() in good
            far = np.where(offsets, 300_000_000, 0).astype("<i4")
            return good.replace(offsets.tobytes(), far.tobytes())
    return None


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def deepen(depth: int) -> Callable[[bytes], bytes]:
    """Gives a slice a column of a type that is nested so deeply, and no rows."""
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.struct([("x", kind)])

    def change(data: bytes) -> bytes:
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        # Without rows: Arrow writes none that are nested like that.
        fields = [*table.schema, pa.field("odd", kind)]
        sink = pa.BufferOutputStream()
        pa.ipc.new_file(sink, pa.schema(fields, table.schema.metadata)).close()
        return bytes(sink.getvalue().to_pybytes())

    return change
