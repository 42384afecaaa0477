"""``midstream watermark``: show the watermarks of a query, and set back a runaway one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from midstream.cli.fsck import Checkpoint, open_store, take_checkpoint
from midstream.errors import OptionError
from midstream.values import show_time

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def watermark(
    checkpoint: Checkpoint,
    stream: Annotated[str | None, typer.Option(help="The stream whose watermark is to be set back.")] = None,
    to: Annotated[
        str | None, typer.Option(help="Where to, as ISO 8601, e.g. 2024-05-01T12:00:00Z; UTC without a zone.")
    ] = None,
) -> None:
    """Show the watermarks of a query, or set back one that a wrong time has moved too far.

    Rows of the stream from that time on are then accepted again. What the wrong watermark has cost is not
    brought back: rows that were late stay late, and rows of other streams that are too far behind it to
    join with a row of this stream are dropped, so results with them are missing. Rows of the stream
    itself from the wrong watermark on are dropped, too: they have moved it. No result comes twice. Refused
    while the query runs.
    """
    from midstream.runtime.watermark_reset import reset_watermark
    from midstream.storage.manifest_log import newest_manifest

    store = open_store(checkpoint)
    if (stream is None) != (to is None):
        raise OptionError(
            "--stream and --to must be given together",
            got="--to alone" if stream is None else "--stream alone",
            hint="leave both out to show the watermarks",
        )
    if stream is None or to is None:
        manifest = newest_manifest(store)
    else:
        moment = _micros(to)
        lease = take_checkpoint(checkpoint, store, "watermark")
        try:
            manifest = reset_watermark(store, lease, stream, moment)
        finally:
            lease.release()
    for name, mark in manifest.streams.items() if manifest else ():
        late = f"{mark.late:,} late, {mark.future:,} future rows"
        typer.echo(f"{name}: watermark {show_time(mark.watermark)}, newest {show_time(mark.latest)}, {late}")


def _micros(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write e.g. 2026-03-02T12:00:00Z"
        raise OptionError("--to must be a time as ISO 8601", got=repr(text), hint=hint) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _UNIX_EPOCH) // timedelta(microseconds=1)
