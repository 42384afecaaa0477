"""What of a query cannot be combined with streams that live at sites, refused before it starts."""

from __future__ import annotations

from typing import Any

import msgspec

from midstream.errors import CheckpointError, OptionError
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.sites.distributed import read_state
from midstream.state.json_with_digest import RESTORE

_WITHOUT = "leave it out, or leave out the sites"


def check_settings_of_sites(query: Query, settings: Settings) -> None:
    """Refuse what would move rows to other sites, or does not know what is at which site."""
    if query.topology is None:
        return
    problems = {
        "stateMemory": settings.memory is not None,
        "balance": settings.balance.mode != "off",
        "initialShares": bool(settings.shares),
        "singlePartition 'forbid'": settings.single_partition == "forbid",
    }
    for name, is_set in problems.items():
        if is_set:
            raise OptionError("a query with sites must not use certain options", got=name, hint=_WITHOUT)


def check_sites_state(query: Query, written: dict[str, Any] | None) -> None:
    """Refuse what sites know in a manifest if it cannot be of this query."""
    if written is None:
        return
    must = "a manifest must have what the sites of its query know"
    try:
        state = read_state(written)
    except msgspec.ValidationError as error:
        raise CheckpointError(must, got=str(error), hint=RESTORE) from None
    topology = query.topology
    known = {} if topology is None else {s: set(topology.streams_at(s)) for s in topology.site_of.values()}
    heads = {*state.decided, *state.switching}
    if {site: set(relay.figures) for site, relay in state.relays.items()} != known or not heads <= set(
        query.names
    ):
        raise CheckpointError(must, got=f"those of {', '.join(state.relays) or 'none'}", hint=RESTORE)


def check_rescale_of_sites(query: Query) -> None:
    """Refuse another number of partitions: it is that of the sites."""
    if query.topology is not None:
        raise OptionError(
            "the number of partitions must be that of the sites",
            got="another one for streams that live at sites",
            hint="say for each site how many it has, with .site('paris', partitions=4), when a query begins",
        )
