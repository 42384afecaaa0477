"""Changes to a checkpoint by somebody who makes digests fit, and going on from it afterwards."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
