"""Requests: another plan for a running query, checked before anything happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from midstream.errors import CheckpointError, MidstreamError, OptionError
from midstream.plan.tree import Plan, parse_plan
from midstream.query.query import Query
from midstream.state.migration import Strategy
from midstream.state.sealed import UNREADABLE

StrategyChoice = Strategy | Literal["auto"]
"""What a user may ask for: a strategy, or the one that serves the goal best when the migration begins."""
STRATEGIES: tuple[StrategyChoice, ...] = ("auto", *get_args(Strategy))
BackgroundChoice = Literal["auto", "off"]
"""Whether a user wants ``hybrid`` to compute what the new plan lacks in the time that epochs leave over."""
BACKGROUND: dict[BackgroundChoice, bool] = {"auto": True, "off": False}


@dataclass(frozen=True, slots=True)
class Request:
    """A plan to move to, and how."""

    plan: Plan
    strategy: StrategyChoice
    background: bool = True
    """Whether ``hybrid`` computes what the new plan lacks, instead of waiting until nobody needs it."""
    isolated: bool | None = None
    """Whether a ``hybrid`` that waits leaves all that has an old row to the old plan, and the new one begins
    without any; None if that is to be decided by what is known of the streams."""

    @property
    def leaves_a_choice(self) -> bool:
        """Whether what is known of the streams decides how the migration goes."""
        waits = self.strategy == "hybrid" and not self.background
        return self.strategy == "auto" or (waits and self.isolated is None)


def make_request(
    query: Query, plan: str | Plan, strategy: str, *, background: bool, isolated: bool | None = None
) -> Request:
    """A request, if there is such a plan and such a strategy and the migration can come to an end."""
    wanted = parse_plan(str(plan), query.names)
    known = next((one for one in STRATEGIES if one == strategy), None)
    if known is None:
        raise OptionError(f"strategy must be one of {', '.join(STRATEGIES)}", got=repr(strategy))
    waits = known == "parallel_track" or (known == "hybrid" and not background)
    pairs = [(a, b) for i, a in enumerate(query.names) for b in query.names[i + 1 :]]
    endless = [f"{a} and {b}" for a, b in pairs if query.windows.bound(a, b) is None]
    if waits and endless:
        raise OptionError(
            f"{known} without background work must have a window to wait for: old rows never expire",
            got=f"no window between {endless[0]}",
            hint="use moving_state, or hybrid with background work",
        )
    if isolated and (known != "hybrid" or background):
        raise OptionError("plans must be kept apart only by hybrid without background work", got=strategy)
    return Request(wanted, known, background, isolated)


class WrittenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as it is kept until it is applied."""

    plan: str
    strategy: StrategyChoice
    background: bool
    isolated: bool | None

    def read(self, query: Query) -> Request:
        """The request, if the query still has such a plan and such a strategy."""
        return make_request(
            query, self.plan, self.strategy, background=self.background, isolated=self.isolated
        )


def write_request(request: Request) -> WrittenRequest:
    """A request as it is kept until it is applied."""
    return WrittenRequest(str(request.plan), request.strategy, request.background, request.isolated)


def decode_request(query: Query, name: str, data: bytes) -> Request:
    """A request that was kept."""
    try:
        return msgspec.json.decode(data, type=WrittenRequest).read(query)
    except (*UNREADABLE, MidstreamError) as error:
        raise CheckpointError(
            "a request for another plan must be readable", got=error, hint=f"delete {name} to go on without"
        ) from None
