"""``midstream fsck`` and ``midstream gc``: check and clean a checkpoint while no query runs on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from midstream.cli.failures import BAD_CHECKPOINT, errors_as_json
from midstream.errors import CheckpointError

if TYPE_CHECKING:
    from midstream.storage.lease import Lease
    from midstream.storage.store import Store

Checkpoint = Annotated[str, typer.Argument(help="The checkpointLocation of the query.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write the findings as JSON.")]


def fsck(checkpoint: Checkpoint, as_json: AsJson = False) -> None:
    """Verify every manifest, slice, digest, reference and place of a checkpoint.

    Nothing is changed. The exit code is 4 if something is wrong, and 7 if there is no checkpoint.
    """
    from midstream.storage.fsck import check

    with errors_as_json(as_json):
        findings = check(open_store(checkpoint))
    if as_json:
        typer.echo(json.dumps({"version": 1, **asdict(findings)}, indent=2))
    else:
        for problem in findings.problems:
            typer.echo(f"{problem.file}: {problem.what}\n  {problem.remedy}")
        last = "no epoch is committed" if findings.epoch is None else f"epoch {findings.epoch} is the last"
        typer.echo(
            f"{len(findings.problems)} problems; {last}; {findings.manifests} manifests, "
            f"{findings.slices} slices with {findings.bytes:,} bytes, {len(findings.orphans)} unused files"
        )
    if findings.problems:
        raise typer.Exit(BAD_CHECKPOINT)


def gc(
    checkpoint: Checkpoint,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete them; without it they are listed.")
    ] = False,
) -> None:
    """List the files of a checkpoint that nothing refers to, or delete them.

    A running query does this by itself. Here it is refused while one runs, and no query starts meanwhile.
    """
    from midstream.storage.fsck import collect_garbage

    store = open_store(checkpoint)
    lease = take_checkpoint(checkpoint, store, "gc")
    try:
        orphans = collect_garbage(store, lease, delete=delete)
        for name in orphans:
            typer.echo(name)
    finally:
        lease.release()
    verb = "deleted" if delete else "would be deleted; say --delete to do so"
    typer.echo(f"{len(orphans)} files {verb}", err=True)


def open_store(checkpoint: str) -> Store:
    """The store of a checkpoint, by any address that queries take, as it is: nothing from a cache."""
    from midstream.spark.option_readers import folder_or_object_store
    from midstream.storage.checkpoint_folder import check_has_checkpoint, explain_unusable
    from midstream.storage.remote import store_at

    location = folder_or_object_store("a checkpoint", checkpoint)
    store = store_at(location, cached=False)
    with explain_unusable("a checkpoint", location, CheckpointError):
        check_has_checkpoint(location, store)
    return store


def take_checkpoint(checkpoint: str, store: Store, command: str) -> Lease:
    """The lease of a checkpoint, for a command that changes it."""
    from midstream.storage.checkpoint_folder import explain_unusable
    from midstream.storage.lease import acquire_lease

    with explain_unusable("a checkpoint", checkpoint, CheckpointError):
        return acquire_lease(store, command)
