"""Requests to replace a query's definition, as they are stored until they are applied."""

from __future__ import annotations

from typing import Any

import msgspec


class ReplacementRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another definition of a query, or another plan for the same one, and how to get there."""

    definition: dict[str, Any]
    """The new definition, as in a manifest; empty if only the plan changes."""
    plan: str
    strategy: str
    """The name of a black-box strategy (``migration/strategies.py``)."""
    path: str = ""
    """Where results of the new definition go; empty if they go where those of the old one do."""
    old_path: str = ""
    """Where those of the old one go, if that is another place that a restart has to know."""
