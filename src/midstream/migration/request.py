"""Requests to migrate a running query to another plan, validated before they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import msgspec

from midstream.errors import CheckpointError, MidstreamError, OptionError, show_value
from midstream.migration.strategies import AUTO, SITE_SWITCH, STRATEGIES, check_strategy_choice
from midstream.plan.sited_layout import check_kind
from midstream.plan.tree import Plan, parse_plan
from midstream.query.query import Query
from midstream.state.json_with_digest import UNREADABLE, reason_unreadable

BackgroundChoice = Literal["auto", "off"]
"""Whether states that the new plan lacks are rebuilt in the background: if the strategy can, or never."""
BACKGROUND: dict[BackgroundChoice, bool] = {"auto": True, "off": False}


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """A plan to migrate to, and how."""

    plan: Plan
    strategy: str
    """The name of a strategy, or ``auto``."""
    background: bool = True
    """Whether states that the new plan lacks are rebuilt in the background, if the strategy can."""
    isolated: bool | None = None
    """Whether the new plan starts without any rows, if the strategy has that choice; if None, the estimated
    cost decides."""

    @property
    def leaves_a_choice(self) -> bool:
        """Whether statistics decide on the strategy or on isolation."""
        if self.plan.sequences:
            return False
        if self.strategy == AUTO:
            return True
        return self.isolated is None and STRATEGIES[self.strategy].may_isolate(background=self.background)


def make_request(
    query: Query, plan: str | Plan, strategy: str, *, background: bool, isolated: bool | None = None
) -> MigrationRequest:
    """A request, if plan and strategy are valid and the migration can end."""
    new_plan = parse_plan(str(plan) if isinstance(plan, Plan) else plan, query.names)
    check_kind(query, new_plan)
    if query.topology is not None:
        if strategy not in (AUTO, SITE_SWITCH):
            raise OptionError(
                "the plan of streams that live at sites must be changed without a strategy",
                got=show_value(strategy),
                hint="leave out the strategy",
            )
        return MigrationRequest(new_plan, SITE_SWITCH, background=False, isolated=False)
    traits = STRATEGIES.get(check_strategy_choice(strategy))
    unbounded = [f"{a} and {b}" for a, b in combinations(query.names, 2) if query.windows.width(a, b) is None]
    if traits is not None and traits.waits_for_expiry(background=background) and unbounded:
        raise OptionError(
            f"{strategy} without background work must have a window to wait for: old rows never expire",
            got=f"no window between {unbounded[0]}",
            hint="use moving_state, or hybrid with background work",
        )
    if isolated and not (traits is not None and traits.may_isolate(background=background)):
        must = "plans must be isolated only by hybrid without background work"
        how = "with background work" if background else "without background work"
        raise OptionError(must, got=f"{strategy} {how}", hint="leave isolated out, or set background to off")
    return MigrationRequest(new_plan, strategy, background, isolated)


class StoredMigrationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as it is stored until it is applied."""

    plan: str
    strategy: str
    background: bool
    isolated: bool | None

    def read(self, query: Query) -> MigrationRequest:
        """The request, if plan and strategy are valid for the query."""
        return make_request(
            query, self.plan, self.strategy, background=self.background, isolated=self.isolated
        )


def write_request(request: MigrationRequest) -> StoredMigrationRequest:
    """The stored form of a request."""
    return StoredMigrationRequest(str(request.plan), request.strategy, request.background, request.isolated)


def decode_request(query: Query, name: str, data: bytes) -> MigrationRequest:
    """A request from the bytes of its file; an error that names the file if it is not valid."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
        if "apart" in fields:  # the field's name in checkpoints before format 5
            fields["isolated"] = fields.pop("apart")
        return msgspec.convert(fields, StoredMigrationRequest).read(query)
    except (*UNREADABLE, MidstreamError) as error:
        raise CheckpointError(
            f"the request for another plan in {name} must be readable",
            got=error.got if isinstance(error, MidstreamError) else reason_unreadable(error),
            hint=f"delete {name} to go on without it",
        ) from None
