"""Checking that an intent is one of this query, before its epoch runs."""

from __future__ import annotations

from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.protocol.intent import Intent
from midstream.state.manifest import Manifest


def check_of_this_query(intent: Intent, manifest: Manifest) -> None:
    """Refuse an intent of another query, and a first intent that another driver has written meanwhile."""
    if intent.first is not None and replace(intent.first, spark_query="") != replace(
        manifest, spark_query=""
    ):
        raise CheckpointError(
            "a query must be begun by one driver only",
            got="a first epoch that another driver has begun meanwhile",
            hint="start the query again: it goes on with what that driver has begun",
        )
    if intent.query != manifest.id or intent.applied_requests < manifest.applied_requests:
        raise CheckpointError(
            f"the intent of epoch {intent.epoch} must be one of this query, after its newest manifest",
            got=f"one of query {intent.query}",
            hint="files of several checkpoints were mixed: restore all of it from one copy",
        )
