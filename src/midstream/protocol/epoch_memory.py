"""Memory in an epoch: from the last manifest to what the epoch does, and on to what its manifest says."""

from __future__ import annotations

from dataclasses import replace as replace_field

from msgspec.structs import replace

from midstream.engine.memory_step import MemoryStep
from midstream.engine.places import Places
from midstream.engine.program import Program
from midstream.errors import CheckpointError
from midstream.memory.balance import ForcedSpill
from midstream.memory.decision import MemoryInputs, decide_memory, owing_groups
from midstream.memory.next_step import MemoryContext, memory_context, memory_step, without_unused
from midstream.memory.settings import MemorySettings
from midstream.memory.sizes import stored_bytes
from midstream.memory.statistics import update_statistics, with_intermediate
from midstream.protocol.intent import Intent
from midstream.protocol.query_terms import committed_terms, terms_of
from midstream.protocol.report import Report
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.memory import Memory

_WATCHED_SHARE = 0.5
"""The share of its budget above which it is watched what a partition's groups produce."""


def next_memory_step(
    context: MemoryContext, manifest: Manifest, intent: Intent, forced: ForcedSpill | None
) -> MemoryStep | None:
    """What the epoch after ``manifest`` does about memory; ``forced`` is for the sake of balance."""
    settings, balances = intent.settings.memory, intent.settings.balance.mode != "off"
    watches = settings is not None and _watches(context, manifest, settings)
    has_sizes = watches or forced is not None or manifest.memory.cuts
    inputs = MemoryInputs(
        settings=settings,
        latest=context.latest,
        window=context.query.longest_window,
        drains=intent.drains,
        has_rows=not intent.without_batch,
        waits=intent.waiting is not None,
        forced=forced,
        keeps_room=intent.settings.balance.mode == "active_disk" and manifest.balance.forced_bytes > 0,
    )
    sizes = context.sizes(manifest.slices) if has_sizes else None
    if sizes is not None and settings is not None and context.new_plan is None:
        statistics = with_intermediate(context.memory.statistics, sizes)
        context = replace_field(context, memory=replace(context.memory, statistics=statistics))
    decision = decide_memory(context, sizes, inputs)
    return memory_step(
        context,
        decision,
        None if settings is None else settings.budget,
        # Slices say how many rows of each group they have from the beginning: it cannot be made up for.
        counts_groups=settings is not None or balances,
        counts_flows=watches or balances,
    )


def _watches(context: MemoryContext, manifest: Manifest, settings: MemorySettings) -> bool:
    """Whether the productivity of groups is watched: once some partition has come near its budget.

    Until then a budget costs next to nothing.
    """
    if manifest.memory.statistics or manifest.memory.cuts:
        return True
    stored = stored_bytes(manifest.slices, context.places)
    return stored is None or max(stored) > _WATCHED_SHARE * settings.budget


def memory_after(
    before: Manifest, after: Manifest, intent: Intent, program: Program, report: Report
) -> Memory:
    """What the manifest of an epoch says of memory; ``after`` has all but that."""
    step = program.memory
    if step is None:
        return Memory()
    memory = without_unused(step.after, after.slices, program.places)
    memory = replace(memory, waiting_plan=intent.waiting.plan if intent.waiting is not None else "")
    if not step.counts_flows or program.migration_step is not None:
        return memory
    statistics = update_statistics(
        program.query,
        program.layout,
        memory.statistics,
        report.flows,
        after.slices,
        groups=program.places.groups,
        seconds=after.statistics.elapsed - before.statistics.elapsed,
    )
    return replace(memory, statistics=statistics)


def check_windows_stay(manifest: Manifest, query: Query) -> None:
    """Refuse other windows while groups are spilled: what they owe is what the windows at that time allow."""
    if manifest.memory.cuts and terms_of(query).within != committed_terms(manifest).within:
        raise CheckpointError(
            "windows must stay as they are while state is spilled",
            got="other windows",
            hint="start the query with the windows that it had, end it with stop(drain=True), and leave out "
            "stateMemory until then",
        )


def owes_results(query: Query, manifest: Manifest, places: Places) -> bool:
    """Whether some group may owe something after the epoch of a manifest."""
    if not manifest.memory.cuts:
        return False
    context = memory_context(query, manifest, places)
    return any(owing_groups(context, context.sizes(manifest.slices)).values())
