"""When figures of a stream have changed so much that sequences may have to change."""

from __future__ import annotations

from midstream.sites.cost import StreamFigures


def exceeds(known: StreamFigures, now: StreamFigures, threshold: float) -> bool:
    """Whether a figure differs from the one that the other sites know by more than a share of it.

    The paper compares the cost of the stream's own join. But a stream's figures also decide what the joins
    after it cost, and those of a head all of its sequence: so any of them counts.
    """
    return any(
        abs(new - old) > threshold * abs(old)
        for old, new in (
            (known.rate, now.rate),
            (known.selectivity, now.selectivity),
            (known.row_bytes, now.row_bytes),
        )
    )
