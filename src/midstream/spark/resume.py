"""Beginning a query, or resuming it from its checkpoint, with settings that fit its state."""

from __future__ import annotations

import uuid
from dataclasses import replace

from midstream.adapt.policy import MigrationPolicy
from midstream.engine.places import Places
from midstream.engine.references import MAX_PARTITIONS
from midstream.errors import CheckpointError, OptionError
from midstream.memory.balance import BalanceSettings
from midstream.memory.settings import MemorySettings
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.rescaling import check_same_shares, places_of
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.sites.planner import SitePolicy
from midstream.spark.options import QueryOptions
from midstream.spark.spark_checkpoint import check_as_new_as_spark, last_batch_done, unmark_batch_done
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest
from midstream.storage.manifest_log import Committed
from midstream.storage.open_checkpoint import as_committed, open_manifest
from midstream.storage.request_queue import asked_definition
from midstream.storage.store import Store


def begin_or_resume(
    query: Query, store: Store, options: QueryOptions, *, lease: int, parallelism: int
) -> tuple[QueryCoordinator, Committed]:
    """Resume from the checkpoint if there is one, else begin; ``parallelism`` is Spark's default."""
    batch_done = last_batch_done(store)
    committed = open_manifest(store, lease)
    check_as_new_as_spark(committed.manifest if committed else None, batch_done)
    check_site_options(query, options)
    settings = make_settings(options, places_of(committed.manifest) if committed else None, parallelism)
    plan = parse_plan(options.plan, query.names) if options.plan else None
    if committed is None:
        return _begin(query, settings, plan or settings.first_plan(query), options.partitions)
    asked = asked_definition(store, committed.manifest)
    coordinator = _resume(query, settings, committed.manifest, asked, replaces=options.replace is not None)
    if plan is not None:
        _check_plan_of_checkpoint(plan, committed.manifest)
    check_same_shares(settings, committed.manifest)
    if batch_done > committed.manifest.batch:
        # The manifest of that epoch was damaged, so it runs again: Spark must repeat the batch.
        unmark_batch_done(store, batch_done)
    return coordinator, committed


def _resume(
    query: Query,
    settings: Settings,
    manifest: Manifest,
    asked: ReplacementRequest | None,
    *,
    replaces: bool,
) -> QueryCoordinator:
    try:
        return QueryCoordinator.resume(query, settings, manifest, asked)
    except CheckpointError:
        if not replaces or asked is not None or manifest.replacement is not None:
            raise
    left_out = [name for name in manifest.definition["order"] if name not in query.by_name]
    if left_out:
        raise OptionError(
            "a stream must be left out while the query runs, since the old definition takes its rows until "
            "results have passed over",
            got=f"no stream {left_out[0]}",
            hint="start the query as it was, and then call query.replace(new_join)",
        )
    return QueryCoordinator.resume_with_another(query, settings, manifest)


def make_settings(options: QueryOptions, places: Places | None, parallelism: int) -> Settings:
    """The settings: from the options, or else from the places of the checkpoint, or else the defaults."""
    if places is not None:
        partitions, default_groups = options.partitions, places.groups
    else:
        partitions = options.partitions or min(parallelism, MAX_PARTITIONS)
        default_groups = max(MAX_PARTITIONS, 4 * partitions)
    return Settings(
        partitions=partitions,
        groups=options.groups or default_groups,
        idle_timeout=options.idle_timeout,
        adapt=options.adapt,
        policy=MigrationPolicy(strategy=options.strategy, background=options.background, goal=options.goal),
        max_event_time_ahead=options.max_event_time_ahead,
        event_time_clock=options.event_time_clock,
        single_partition=options.single_partition,
        memory=_memory_settings(options),
        balance=_balance_settings(options),
        shares=options.initial_shares or (),
        sites=_site_policy(options),
    )


def check_site_options(query: Query, options: QueryOptions) -> None:
    """Refuse options that have no effect with sites, or without."""
    if query.topology is not None and options.partitions is not None:
        raise OptionError(
            "with sites, partitions must be given for each site",
            got=f"{options.partitions} for all",
            hint="leave the option out, and write .site('paris', partitions=4) where a site has several",
        )
    defaults = QueryOptions()
    about_sites = {
        "planner": options.planner != defaults.planner,
        "update": options.update != defaults.update,
        "siteThreshold": options.site_threshold != defaults.site_threshold,
    }
    for name, is_set in about_sites.items():
        if is_set and query.topology is None:
            must = f"{name} must be set together with sites, which it is about"
            raise OptionError(must, got="streams without sites", hint="write .stream(..., site='paris')")


def _site_policy(options: QueryOptions) -> SitePolicy:
    """How plans for sites are found. Sites that know only their own figures keep the greedy plan."""
    is_distributed = options.update == "distributed"
    if is_distributed and options.planner not in (None, "greedy"):
        raise OptionError(
            "planner must be 'greedy' if update is 'distributed'",
            got=options.planner,
            hint="leave one of them out",
        )
    planner = options.planner or ("greedy" if is_distributed else "shared")
    return SitePolicy(planner, options.update, options.site_threshold)


def _balance_settings(options: QueryOptions) -> BalanceSettings:
    """When state moves; nothing may be set that would have no effect."""
    others = {
        "balanceThreshold": options.balance_threshold,
        "balancePause": options.balance_pause,
        "balanceProductivity": options.balance_productivity,
        "forcedSpill": options.forced_spill,
    }
    for name, value in others.items():
        if value is not None and options.balance == "off":
            must = f"{name} must be set together with balance, which it is about"
            raise OptionError(must, got="balance 'off'", hint="set it, e.g. to 'lazy_disk'")
    if options.balance == "active_disk" and options.state_memory is None:
        must = "balance must be 'lazy_disk' or 'off' without stateMemory"
        raise OptionError(must, got="'active_disk'", hint="set stateMemory, the budget that it spills for")
    defaults = BalanceSettings()
    return BalanceSettings(
        mode=options.balance,
        threshold=defaults.threshold if options.balance_threshold is None else options.balance_threshold,
        pause=defaults.pause if options.balance_pause is None else options.balance_pause,
        productivity_ratio=options.balance_productivity or defaults.productivity_ratio,
        forced_spill=options.forced_spill,
    )


def _memory_settings(options: QueryOptions) -> MemorySettings | None:
    """The budget of memory; without one, nothing may be set that is about it."""
    others = {
        "spill": options.spill,
        "spillShare": options.spill_share,
        "cleanupDelay": options.cleanup_delay,
    }
    if options.state_memory is None:
        for name, value in others.items():
            if value is not None:
                must = f"{name} must be set together with stateMemory, the budget that it is about"
                raise OptionError(must, got="no stateMemory", hint="set it, e.g. to '512m'")
        return None
    defaults = MemorySettings(options.state_memory)
    return MemorySettings(
        budget=options.state_memory,
        strategy=options.spill or defaults.strategy,
        spill_share=defaults.spill_share if options.spill_share is None else options.spill_share,
        cleanup_delay=options.cleanup_delay,
    )


def _begin(
    query: Query, settings: Settings, plan: Plan, partitions: int | None
) -> tuple[QueryCoordinator, Committed]:
    first = Coordinator(query, settings).initial_manifest(uuid.uuid4().hex, plan)
    # A run that ended before its first batch may have left a request, which a default does not undo.
    return QueryCoordinator(Coordinator(query, replace(settings, partitions=partitions))), as_committed(first)


def _check_plan_of_checkpoint(plan: Plan, stored: Manifest) -> None:
    """Refuse to resume with a plan that the checkpoint does not have."""
    new_plan = stored.migration.new_plan if stored.migration else stored.plan
    if str(plan) not in {stored.plan, stored.initial_plan, new_plan}:
        raise OptionError(
            f"the plan of a checkpoint must be the one it began with, or has now: {stored.plan}",
            got=str(plan),
            hint="leave the option out to resume with it, and then change it with query.migrate(plan)",
        )
