"""The options of a query, each in one record: name, type, default, how its text is read, and what it means.

The records are the single source. The writer reads text by them, everything else reads typed fields of
:class:`QueryOptions`, and the guide's table is generated from them. An option is added here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from midstream.adapt.policy import GOALS, Goal
from midstream.adapt.single_partition import SINGLE_PARTITION, SinglePartition
from midstream.engine.references import MAX_PARTITIONS
from midstream.errors import OptionError, show_value
from midstream.memory.balance import BALANCE_MODES, BalanceMode
from midstream.memory.strategies import SPILL_STRATEGIES
from midstream.migration.request import BACKGROUND
from midstream.migration.strategies import AUTO, BLACK_BOX_STRATEGIES, STRATEGY_CHOICES
from midstream.protocol.health import LATE_SHARE
from midstream.protocol.settings import CLOCKS, MAX_GROUPS, ONE_DAY, Clock
from midstream.sites.planner import PLANNERS, UPDATES, Planner, ReplanMode
from midstream.spark.option_readers import (
    CODECS,
    a_duration,
    a_size,
    choice,
    folder,
    folder_or_object_store,
    number_from,
    one_of,
    or_off,
    plan_text,
    share,
    whole_number,
    whole_numbers,
)
from midstream.spark.option_record import RECORD, Option, option
from midstream.spark.spark_option_hints import hint_for
from midstream.values import Micros


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options that a query was given, read and checked; each has its default unless it was set."""

    path: str | None = option(
        "path",
        default=None,
        shown="none",
        read=folder,
        may_change="yes",
        meaning="Folder of the Parquet sink.",
        sink="parquet",
    )
    checkpoint_location: str | None = option(
        "checkpointLocation",
        default=None,
        shown="a folder in what `spark.sql.streaming.checkpointLocation` says; else none, or a temporary one "
        "for `memory`, `console` and `foreachBatch`",
        read=folder_or_object_store,
        may_change="if the folder moves with it",
        meaning="Folder of the query's state and progress, or an address `s3://bucket/folder`. A query that "
        "is started with the same folder resumes from it.",
    )
    compression: str | None = option(
        "compression",
        default=None,
        shown="what `spark.sql.parquet.compression.codec` says: `snappy`",
        read=choice(CODECS),
        may_change="yes",
        meaning="Codec of the Parquet files: `none` or `uncompressed`, `snappy`, `gzip`, `lz4` or `lz4_raw`, "
        "`brotli` or `zstd`.",
    )
    plan: str | None = option(
        "plan",
        default=None,
        shown="left-deep in the order of the streams, staying connected",
        read=plan_text,
        may_change="no",
        meaning="The plan to start with, e.g. `(orders payments) shipments`. A restarted query resumes with "
        "the plan of its checkpoint.",
    )
    partitions: int | None = option(
        "partitions",
        default=None,
        shown="Spark's default parallelism",
        read=whole_number(1, MAX_PARTITIONS),
        may_change="yes",
        meaning="Number of engine partitions, the pieces that state is in and that are joined in parallel; "
        "see [how to choose it](#on-a-cluster). `query.rescale` [changes it](operating.md#rescaling) while "
        "the query runs.",
    )
    groups: int | None = option(
        "groups",
        default=None,
        shown="512, or 4 per partition if that is more",
        read=whole_number(1, MAX_GROUPS),
        may_change="no",
        meaning="Number of partition groups, the unit in which state is placed, and the most partitions that "
        "there can be. Fixed for the life of a checkpoint.",
    )
    late_rows: str | None = option(
        "lateRows",
        default=None,
        shown="none: late rows are only counted",
        read=folder,
        may_change="yes",
        meaning="Folder of a Parquet table that keeps late rows, with their stream and the reason.",
    )
    late_share_warning: float = option(
        "lateShareWarning",
        default=LATE_SHARE,
        shown="0.01",
        read=share,
        may_change="yes",
        meaning="The share of late rows above which a stream has the problem `late-rows`.",
    )
    idle_timeout: Micros | None = option(
        "idleTimeout",
        default=None,
        shown="none: a silent stream holds back expiry for as long as it is silent",
        read=a_duration,
        may_change="yes",
        meaning="A stream that brings no rows while the event time of the others advances by more than this "
        "no longer holds back the expiry of state.",
    )
    max_event_time_ahead: Micros | None = option(
        "maxEventTimeAhead",
        default=ONE_DAY,
        shown="1 day",
        read=or_off(a_duration),
        may_change="yes",
        meaning="How far ahead of the clock an event time may be. A row further ahead moves no watermark and "
        "is not joined: it is counted and, with `lateRows`, kept with the reason `future`. `off` accepts any "
        "time.",
    )
    event_time_clock: Clock = option(
        "eventTimeClock",
        default="wall",
        shown="wall",
        read=one_of(CLOCKS),
        may_change="yes",
        meaning="What `maxEventTimeAhead` is measured against: `wall`, the wall clock; or `stream`, the "
        "latest event time of the stream itself in earlier batches, for replays whose times are not those "
        "of today.",
    )
    num_rows: int = option(
        "numRows",
        default=20,
        shown="20",
        read=whole_number(0, 1 << 30),
        may_change="yes",
        meaning="Rows that the console sink shows of each batch.",
        sink="console",
    )
    truncate: bool = option(
        "truncate",
        default=True,
        shown="true",
        read=choice({"true": True, "false": False}),
        may_change="yes",
        meaning="Whether the console sink shortens long values.",
        sink="console",
    )
    adapt: bool = option(
        "adapt",
        default=True,
        shown="auto",
        read=choice({"auto": True, "off": False}),
        may_change="yes",
        meaning="Whether the query changes its plan by itself when another one costs less: `auto`, or `off`.",
    )
    goal: Goal = option(
        "goal",
        default="steady",
        shown="steady",
        read=one_of(GOALS),
        may_change="yes",
        meaning="What strategy `auto` optimizes for: `steady`, batches that take about as long as ever; "
        "`cheap`, the least work in all; `quick`, to be on the new plan soon.",
    )
    strategy: str = option(
        "strategy",
        default=AUTO,
        shown="auto",
        read=one_of(STRATEGY_CHOICES),
        may_change="yes",
        meaning="How the plan is changed, if `query.migrate` does not say: `moving_state`, "
        "`parallel_track`, `hybrid`, or `auto`, by the goal.",
    )
    background: bool = option(
        "background",
        default=True,
        shown="auto",
        read=choice(BACKGROUND),
        may_change="yes",
        meaning="Whether `hybrid` computes the states that the new plan lacks, in the time that batches "
        "leave over: `auto`, or `off` to wait until a window has passed.",
    )
    single_partition: SinglePartition = option(
        "singlePartition",
        default="auto",
        shown="auto",
        read=one_of(SINGLE_PARTITION),
        may_change="yes",
        meaning="Whether a plan may have a node whose inputs have no key in common, so that all its rows are "
        "in one engine partition: `auto`, if you ask for it, or while its state is small; or `forbid`.",
    )
    planner: Planner | None = option(
        "planner",
        default=None,
        shown="`shared`, or `greedy` if `update` is `distributed`",
        read=one_of(PLANNERS),
        may_change="yes",
        meaning="How a plan is found if streams [live at sites](sites.md): `shared`, by costs that count "
        "once what several streams need; `greedy`, one join after the other; or `optimal`, the best by the "
        "costs of each stream alone, of up to six.",
    )
    update: ReplanMode = option(
        "update",
        default="central",
        shown="central",
        read=one_of(UPDATES),
        may_change="yes",
        meaning="How another plan for sites is found: `central`, by the driver, from all statistics; or "
        "`distributed`, by messages between sites that each know only their own.",
    )
    site_threshold: float = option(
        "siteThreshold",
        default=0.2,
        shown="0.2",
        read=share,
        may_change="yes",
        meaning="Another plan for sites is looked for when the rate, the selectivity or the row size of a "
        "stream has changed by more than this share.",
    )
    state_memory: int | None = option(
        "stateMemory",
        default=None,
        shown="none: all state is active",
        read=a_size,
        may_change="yes",
        meaning="Budget of active state in each engine partition, such as `512m`. When it is passed, state "
        "is [spilled](memory.md), and results that need it come later.",
    )
    spill: str | None = option(
        "spill",
        default=None,
        shown="global_output_penalty",
        read=one_of(SPILL_STRATEGIES),
        may_change="yes",
        meaning="Which state is spilled first: `bottom_up`, `local_output`, `global_output`, "
        "`global_output_penalty`, `random`, `largest` or `most_productive`.",
    )
    spill_share: float | None = option(
        "spillShare",
        default=None,
        shown="0.3",
        read=share,
        may_change="yes",
        meaning="The share of active state that is spilled when `stateMemory` is passed.",
    )
    cleanup_delay: Micros | None = option(
        "cleanupDelay",
        default=None,
        shown="the longest window",
        read=a_duration,
        may_change="yes",
        meaning="How long in event time results that need spilled state may wait.",
    )
    replace: str | None = option(
        "replace",
        default=None,
        shown="none",
        read=one_of(tuple(BLACK_BOX_STRATEGIES)),
        may_change="yes",
        meaning="`generalized_hybrid`, `generalized_moving_state` or `generalized_parallel_track`: the "
        "strategy by which a definition that differs from the checkpoint's [replaces "
        "it](changing-a-query.md). Without the option such a query is refused.",
    )
    balance: BalanceMode = option(
        "balance",
        default="off",
        shown="off",
        read=one_of(BALANCE_MODES),
        may_change="yes",
        meaning="Whether state moves by itself to partitions that [have less](balance.md): `lazy_disk`; "
        "`active_disk`, which also spills groups that produce little to make room for others; or `off`.",
    )
    balance_threshold: float | None = option(
        "balanceThreshold",
        default=None,
        shown="0.8",
        read=share,
        may_change="yes",
        meaning="State moves if a partition has less than this share of what the fullest one has.",
    )
    balance_pause: Micros | None = option(
        "balancePause",
        default=None,
        shown="45 seconds",
        read=a_duration,
        may_change="yes",
        meaning="How much event time passes before state moves again.",
    )
    balance_productivity: float | None = option(
        "balanceProductivity",
        default=None,
        shown="2",
        read=number_from(1),
        may_change="yes",
        meaning="`active_disk` spills state of the least productive partition if another one is more than "
        "this many times as productive.",
    )
    forced_spill: int | None = option(
        "forcedSpill",
        default=None,
        shown="the size of all state less all budgets",
        read=a_size,
        may_change="yes",
        meaning="The most that `active_disk` spills before a budget is passed.",
    )
    initial_shares: tuple[int, ...] | None = option(
        "initialShares",
        default=None,
        shown="the same for each partition",
        read=whole_numbers,
        may_change="no",
        meaning="In which proportion the partitions have groups at first, such as `2,1,1`; "
        "not after [another number](operating.md#rescaling) of partitions.",
    )

    def with_option(self, name: str, value: object) -> QueryOptions:
        """These options with one set from text; unknown names and bad values are errors."""
        entry = _BY_NAME.get(str(name).lower())
        if entry is None:
            names = [record.name for record in OPTIONS]
            close = get_close_matches(str(name).lower(), _BY_NAME, n=1)
            meant = f"perhaps you mean {_BY_NAME[close[0]][1].name}; " if close else ""
            raise OptionError(
                "an option must be one that Midstream knows",
                got=show_value(name),
                hint=hint_for(str(name)) or f"{meant}the options are {', '.join(names)}",
            )
        attribute, record = entry
        if value is None:
            raise OptionError(f"{record.name} must have a value", got="None", hint="leave the option out")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return replace(self, **{attribute: record.read(record.name, text)})

    def check_sink(self, sink: str) -> None:
        """Refuse an option that is for another sink: it would have no effect."""
        for attribute, record in zip(fields(self), OPTIONS, strict=True):
            is_set = getattr(self, attribute.name) != record.default
            if is_set and record.sink not in (None, sink):
                raise OptionError(
                    f"{record.name} must be used with the {record.sink} sink only",
                    got=f"the {sink} sink",
                    hint=f"leave {record.name} out",
                )


OPTIONS: tuple[Option[Any], ...] = tuple(f.metadata[RECORD] for f in fields(QueryOptions))
_BY_NAME: dict[str, tuple[str, Option[Any]]] = {
    record.name.lower(): (attribute.name, record)
    for attribute, record in zip(fields(QueryOptions), OPTIONS, strict=True)
}
