"""The part of an epoch that is about aggregates: where groups are merged, and which windows leave."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.plan.layout import Fragment


@dataclass(frozen=True)
class AggregateStep:
    """What an epoch does about aggregates, besides merging new results into them."""

    fragment: Fragment
    """It runs after all joins, and its only input are partial aggregates of results."""
    emitted: int | None
    """The windows that end by then have left in earlier epochs; None if none has. In update mode they have no
    results any more."""
    until: int | None
    """The output watermark: the windows that end by then leave now, and their states go.
    No result to come is before it."""
