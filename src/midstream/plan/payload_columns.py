"""Which columns rows carry into a fragment."""

from __future__ import annotations

from midstream.plan.layout import column_name, epoch_column, key_column, representative
from midstream.query.query import Query


def payload_columns(query: Query, streams: tuple[str, ...]) -> tuple[str, ...]:
    """Payload columns that rows of ``streams`` must carry for whatever may be joined to them.

    They are the same in every plan, so that after a migration one plan can use what another has stored; and
    with other outputs, which may change when the query is started again.
    """
    members = frozenset(streams)
    refs = {output.ref for output in query.kept if output.ref.stream in members}
    for residual in query.residuals:
        if not residual.streams <= members:
            refs.update(ref for ref in residual.columns if ref.stream in members)
    # If one class places every node, and its hash is exact, its values are never compared.
    is_only_class = len(query.classes) == 1 and query.classes[0].streams >= frozenset(query.names)
    compared = [c for c in query.classes if not (is_only_class and c.exact_hash)]
    keys = {
        key_column(representative(query, streams, c.id), c.id)
        for c in compared
        if c.streams & members and not c.streams <= members
    }
    epochs = {epoch_column(stream) for stream in streams} if len(streams) > 1 else set()
    return tuple(sorted(keys | epochs | {column_name(ref) for ref in refs}))
