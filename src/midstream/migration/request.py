"""Requests: another plan for a running query, checked before anything happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from midstream.errors import CheckpointError, OptionError
from midstream.plan.tree import Plan, parse_plan
from midstream.query.query import Query
from midstream.state.migration import Strategy

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class Request:
    """A plan to move to, and how."""

    plan: Plan
    strategy: Strategy
    background: bool = True
    """Whether ``hybrid`` computes what the new plan lacks, instead of waiting until nobody needs it."""


def make_request(query: Query, plan: str, strategy: str, *, background: bool) -> Request:
    """A request, if there is such a plan and such a strategy and the migration can come to an end."""
    wanted = parse_plan(plan, query.names)
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
    return Request(wanted, known, background)


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    plan: str
    strategy: Strategy
    background: bool


def write_request(request: Request) -> bytes:
    """A request as it is kept until it is heeded."""
    return msgspec.json.encode(_Written(str(request.plan), request.strategy, request.background))


def read_request(query: Query, data: Any) -> Request:
    """A request that was kept."""
    try:
        written = msgspec.json.decode(data, type=_Written)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(
            "a request for another plan must be readable", got=error, hint="delete the file 'requests/next'"
        ) from None
    return make_request(query, written.plan, written.strategy, background=written.background)
