"""Balance in an epoch: from the last manifest to where groups are, and on to what its manifest says."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replace_struct

from midstream.engine.memory_step import MemoryStep
from midstream.engine.program import Program
from midstream.memory.balance import BalanceDecision, decide_balance, is_due
from midstream.memory.decision import FORCED
from midstream.memory.hot_keys import add_work, decide_hot_keys, gather_all
from midstream.memory.next_step import MemoryContext
from midstream.protocol.intent import Intent
from midstream.protocol.report import Report
from midstream.protocol.rescaling import may_rescale
from midstream.state.balance import Balance
from midstream.state.manifest import Manifest


def next_balance(context: MemoryContext, manifest: Manifest, intent: Intent) -> BalanceDecision:
    """What the epoch after ``manifest`` does about balance; ``context`` has the places without it."""
    settings = intent.settings.balance
    if context.places.tables != manifest.routings or not may_rescale(manifest):
        # With other partitions everything is divided anew; until then, references are not for all to read.
        return BalanceDecision()
    decision = BalanceDecision()
    if is_due(settings, manifest.balance, context.latest):
        sizes = context.sizes(manifest.slices)
        decision = decide_balance(context, sizes, settings, intent.settings.memory, manifest.balance)
    if context.new_plan is not None:
        hot = gather_all(context)
    elif decision.spread is not None:
        return decision
    else:
        hot = decide_hot_keys(context, settings, manifest.statistics, manifest.balance)
    return replace(decision, spread=hot.spread, hot_keys=hot.changes)


def balance_with(
    context: MemoryContext, before: Balance, decision: BalanceDecision, step: MemoryStep | None
) -> Balance:
    """The balance of an epoch that carries a decision out, given what it does about memory."""
    changes = step.after.changes if step is not None else ()
    forced = sum(change.bytes for change in changes if change.reason == FORCED)
    is_spilled = step is not None and bool(step.after.cuts)
    acts = bool(decision.relocations) or forced > 0
    return replace_struct(
        before,
        decided_at=context.latest if acts else before.decided_at,
        forced_bytes=before.forced_bytes + forced if is_spilled else 0,
        relocations=decision.relocations,
        hot_keys=decision.hot_keys,
        work=before.work if decision.spread is None else b"",
    )


def balance_after(before: Manifest, after: Manifest, program: Program, report: Report) -> Balance:
    """What the manifest of an epoch says of balance; ``after`` has its statistics."""
    latest = max((s.latest for s in after.streams.values() if s.latest is not None), default=None)
    seconds = after.statistics.elapsed - before.statistics.elapsed
    return add_work(program.query, program.places, program.balance, report.partition_work, seconds, latest)
