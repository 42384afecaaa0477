"""The workload of a seed of the simulator: a query, its streams, plans and options, all random.

Sizes are limited so that hundreds of seeds run in a minute: the more streams, and the wider the window, the
more distinct keys there are, so that the number of results stays in the thousands.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import combinations, pairwise

import pyarrow as pa

from midstream.adapt.policy import GOALS, MigrationPolicy
from midstream.migration.request import MigrationRequest
from midstream.migration.strategies import STRATEGY_CHOICES
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan
from midstream.protocol.settings import CLOCKS, ONE_DAY, Settings
from midstream.query.build import build_query
from midstream.query.clauses import Output
from midstream.query.query import Query
from midstream.query.window import imply_windows
from midstream.testing.draw_aggregates import draw_aggregation
from midstream.testing.draw_balance import draw_balance
from midstream.testing.draw_memory import draw_budget, draw_memory
from midstream.testing.draw_oddities import draw_names, features_of_rows, with_oddities
from midstream.testing.draw_plans import draw_plan, draw_requests, leave_a_choice, strategy_name
from midstream.testing.draw_sites import at_sites
from midstream.testing.possible_terms import widest
from midstream.testing.random_cuts import RandomCuts, draw_cuts
from midstream.testing.random_places import RandomPlaces
from midstream.testing.random_streams import SECOND, Shape, generate, stream
from midstream.values import Micros

Epoch = Mapping[str, pa.Table]

_EPOCH_SECONDS = 10
_WRONG_TIME_RATE = 0.04
"""How often a stream has a row with a wrong time in an epoch."""
_ROWS_PER_EPOCH = 6
"""Rows of a stream in an epoch, on average."""
_MAX_RESULTS = 2_000
"""About how many results there are at most."""
_EXTRAS: dict[str, tuple[pa.DataType, Sequence[object]]] = {
    "day": (pa.int32(), (0, 19_800, -719_528, 2_000_000_000, -2_000_000_000, None)),
    "local": (pa.int64(), (0, 2**62, -(2**62), 1_704_067_200_000_001, None)),
    "x": (pa.float64(), (0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), None)),
    "raw": (pa.binary(), (b"", b"\xff\0", None)),
    "note": (pa.string(), ("", 'say "x"', "tab\t\u0001", "straße", None)),
    "amount": (pa.decimal128(38, 10), (Decimal("1.5"), Decimal("-9999999999999999999999999999"), None)),
    "headers": (
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ([], [{"key": "h", "value": b"\xff"}, None], [{"key": None, "value": None}], None),
    ),
    "tags": (pa.map_(pa.string(), pa.int32()), ([], [("a", 1), ("b", None)], None)),
    "flag": (pa.bool_(), (True, False, None)),
}
"""Columns of all types, with difficult values; dates and local times as numbers."""
_TYPES_OF_NUMBERS: dict[str, pa.DataType] = {"day": pa.date32(), "local": pa.timestamp("us")}
"""The types of columns whose values are given as numbers."""
_WRONG_TIMES = (31_556_952_000 * SECOND, 2**62, -62_135_596_800 * SECOND)
"""A thousand years after 1970, beyond any calendar, and the year 1."""
_RUNAWAY = 600 * SECOND
_LATER_BUDGET_RATE = 0.1
"""How often a query that begins without a budget of memory may be given one later."""
_SAME_WINDOWS_RATE = 0.6
"""How often a query with a budget has the same windows throughout."""
_RANDOM_CUTS_RATE = 0.4
"""How often chance decides about memory, if there is a budget."""
FIRST_SITED_SEED = 1_000_000
"""From this seed on streams live at sites; so all seeds before are what they were without."""
RESIDUALS = (
    "{x}.v < {y}.v + 5",
    "{x}.v <> {y}.v OR {x}.k2 = '0'",
    "{x}.v + {y}.v > 3",
    "coalesce({x}.k, 0) % 3 <= {y}.v % 5",
    "NOT {x}.k2 LIKE '2%' OR {y}.v > 0",
)


@dataclass(frozen=True)
class Workload:
    """All that a run needs except for the store."""

    query: Query
    plan: Plan
    settings: Settings
    epochs: tuple[Epoch, ...]
    keeps_late: bool
    """Whether late rows are written for readers."""
    requests: Mapping[int, MigrationRequest] = field(default_factory=dict)
    """Requests for other plans, by the epoch before which they are made."""
    background_epochs: int | None = None
    """How many epochs' worth of a missing state an epoch computes."""
    other_terms: tuple[Query, ...] = ()
    """The query as it may be asked when it is started again: with other lateness, windows and outputs."""
    may_spill: bool = False
    """Whether there is a budget of memory, from the first start or from a later one on."""
    cuts: RandomCuts | None = None
    """What decides about memory while there is a budget, if not the production code."""
    places: RandomPlaces | None = None
    """What decides about balance while it is on, if not the production code."""

    @property
    def widest(self) -> Query:
        """The query with windows as wide as it ever has them."""
        return widest((self.query, *self.other_terms))

    def __str__(self) -> str:
        settings, idle = self.settings, self.settings.idle_timeout
        options = [
            f"{self.settings.partitions} of {self.settings.groups}",
            *([f"idle after {idle // SECOND} s"] if idle is not None else []),
            *(["late rows kept"] if self.keeps_late else []),
            *(["adapting"] if self.settings.adapt else []),
            *([str(self.settings.memory)] if self.settings.memory is not None else []),
            *([str(self.cuts)] if self.cuts is not None else []),
            *([str(self.query.aggregation)] if self.query.aggregation is not None else []),
            *([str(settings.balance)] if settings.balance.mode != "off" else []),
            *([str(self.places)] if self.places is not None else []),
            *(f"{strategy_name(r)} to {r.plan} from {epoch} on" for epoch, r in self.requests.items()),
        ]
        return f"{self.plan} over {len(self.epochs)} epochs ({', '.join(options)})"


def features_of(workload: Workload) -> set[str]:
    """The features of a workload; a test checks that the seeds together have all of them."""
    query, settings = workload.query, workload.settings
    widths = [width for *_, width in query.windows.widths]
    features = {
        "residuals": bool(query.residuals),
        "windows of pairs": len(set(widths)) > 1,
        "a pair without a window": len(widths) < _pairs(query),
        "different lateness": len({stream.lateness for stream in query.streams}) > 1,
        "several partitions": settings.partitions != 1,
        "several stages": build_layout(query, workload.plan).stages > 1,
        "several keys and another plan": len(query.classes) > 1 and bool(workload.requests),
        "an idle timeout": settings.idle_timeout is not None,
        "late rows kept": workload.keeps_late,
        "late rows dropped": not workload.keeps_late,
        "many streams": len(query.names) > 5,
        "columns of all types": len(query.streams[0].schema) > len(_EXTRAS),
        "cuts at random": workload.cuts is not None,
        "aggregates in append mode": query.aggregation is not None and not query.aggregation.is_update_mode,
        "aggregates in update mode": query.aggregation is not None and query.aggregation.is_update_mode,
        "sites": query.topology is not None,
        "aggregates at sites": query.topology is not None and query.aggregation is not None,
        "balance": settings.balance.mode != "off" and workload.places is None,
        "other windows within a budget": workload.may_spill
        and any(other.windows != query.windows for other in workload.other_terms),
        "places at random": workload.places is not None,
        "a wrong time": any(_has_wrong_time(table) for epoch in workload.epochs for table in epoch.values()),
    }
    present = {name for name, present in features.items() if present}
    return present | features_of_rows(query.names, workload.epochs)


def _has_wrong_time(table: pa.Table) -> bool:
    return not set(_WRONG_TIMES).isdisjoint(table.column("t").cast(pa.int64()).to_pylist())


def draw_workload(rng: random.Random, seed: int) -> Workload:
    """Any query over two to eight streams, with late rows, nulls, wrong times and silent streams."""
    names = draw_names(seed, rng.choice((2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 8)))
    # Some runs are long enough for slices to be merged, retired and deleted.
    epochs = rng.choice((3, 3, 4, 5, 6, 8, 14))
    query = draw_aggregation(seed, _query(rng, names))
    window_epochs = _window_epochs(query, epochs)
    # How many matches a row has in each of the other streams.
    matches = min(6.0, (_MAX_RESULTS / (_ROWS_PER_EPOCH * epochs)) ** (1 / (len(names) - 1)))
    keys = max(3, round(_ROWS_PER_EPOCH * window_epochs / (matches * rng.uniform(0.5, 1.0))))
    hot = rng.choice((0.0, 0.15)) if len(names) < 4 else 0.0
    shapes = {name: _shape(rng, keys, hot, epochs) for name in names}
    partitions = rng.choice((1, 1, 2, 2, 3, 4))
    settings = Settings(
        partitions,
        rng.choice((partitions, 8, 31)),
        rng.choice((None, Micros(10 * SECOND), Micros(25 * SECOND))),
    )
    tables = generate(shapes, epochs, seed)
    # A source may have no table at all, which is not the same as a table without rows.
    arrivals = tuple(
        {n: _fill(rng, query, n, t) for n, t in e.items() if t.num_rows or rng.random() < 0.5} for e in tables
    )
    arrivals = with_oddities(seed, names, arrivals)
    plan, keeps_late = draw_plan(rng, names), rng.random() < 0.5
    # Drawn separately, so that seeds have the same rows with and without migrations.
    migration_rng = random.Random(f"migrations {seed}")  # noqa: S311  # it must be reproducible
    keeping_rng = random.Random(f"kept sub-plans {seed}")  # noqa: S311  # it must be reproducible
    requests = draw_requests(migration_rng, keeping_rng, query, plan, epochs)
    background_epochs = migration_rng.choice((1, 1, 2, 3, None))
    # Comparing all plans of many streams would take most of the time.
    settings = replace(settings, adapt=migration_rng.random() < 0.5 and len(names) < 6)
    choice_rng = random.Random(f"choices {seed}")  # noqa: S311  # it must be reproducible
    requests = {epoch: leave_a_choice(choice_rng, request) for epoch, request in requests.items()}
    settings = replace(settings, rows_moved_at_once=migration_rng.choice((0, 20, 50_000)))
    terms_rng = random.Random(f"terms {seed}")  # noqa: S311  # it must be reproducible
    other_terms = tuple(draw_terms(terms_rng, query) for _ in range(3))
    memory_rng = random.Random(f"memory {seed}")  # noqa: S311  # it must be reproducible
    settings = replace(settings, memory=draw_memory(memory_rng, query))
    may_spill = settings.memory is not None or memory_rng.random() < _LATER_BUDGET_RATE
    windows_rng = random.Random(f"windows within a budget {seed}")  # noqa: S311  # it must be reproducible
    if may_spill and windows_rng.random() < _SAME_WINDOWS_RATE:
        # Otherwise they change only while no state is spilled, and none is for as long as that matters.
        other_terms = tuple(replace(other, windows=query.windows) for other in other_terms)
    cuts = draw_cuts(memory_rng) if may_spill and memory_rng.random() < _RANDOM_CUTS_RATE else None
    balance_rng = random.Random(f"balance {seed}")  # noqa: S311  # it must be reproducible
    settings, places = draw_balance(balance_rng, query, plan, arrivals, settings)
    if seed >= FIRST_SITED_SEED:
        site_rng = random.Random(f"sites {seed}")  # noqa: S311  # it must be reproducible
        query, plan, settings, requests = at_sites(site_rng, query, settings, requests)
        other_terms = tuple(replace(other, topology=query.topology) for other in other_terms)
        may_spill, cuts, places = False, None, None
    return Workload(
        query,
        plan,
        settings,
        arrivals,
        keeps_late,
        requests,
        background_epochs,
        other_terms,
        may_spill,
        cuts,
        places,
    )


def vary(workload: Workload, accepted: Mapping[str, pa.Table], rng: random.Random) -> Workload:
    """The accepted rows again, under another plan that never changes, in other partitions and epochs.

    The results must be the same. Which rows are late depends on the epochs, so the rows are in the order of
    their times and there is no idle timeout: then no row is late, however the epochs are cut.
    """
    count = rng.randint(1, 4)
    parts: list[dict[str, pa.Table]] = [{} for _ in range(count)]
    for name, table in accepted.items():
        ordered = table.sort_by(str(workload.query.by_name[name].time.path[0]))
        cuts = sorted(rng.randint(0, table.num_rows) for _ in range(count - 1))
        for epoch, (start, stop) in enumerate(pairwise([0, *cuts, table.num_rows])):
            if stop > start:
                parts[epoch][name] = ordered.slice(start, stop - start)
    partitions = rng.choice([p for p in (1, 2, 3, 5) if p != workload.settings.partitions])
    return replace(
        workload,
        # Where streams live makes no difference.
        query=replace(workload.query, topology=None),
        plan=draw_plan(rng, workload.query.names),
        settings=Settings(partitions, rng.choice((partitions, 16)), max_event_time_ahead=None),
        epochs=tuple(parts),
        requests={},
    )


def changed_settings(workload: Workload, rng: random.Random) -> Settings:
    """The options of a workload, those changed that may change when a query is started again."""
    few = len(workload.query.names) < 6
    return replace(
        workload.settings,
        idle_timeout=rng.choice((None, workload.settings.idle_timeout, Micros(10 * SECOND))),
        adapt=few and rng.random() < 0.5,
        policy=MigrationPolicy(rng.choice(STRATEGY_CHOICES), rng.random() < 0.5, rng.choice(GOALS)),
        max_event_time_ahead=rng.choice((None, ONE_DAY, ONE_DAY, Micros(60 * SECOND))),
        event_time_clock=rng.choice(CLOCKS),
        memory=rng.choice((workload.settings.memory, None, draw_budget(rng))) if workload.may_spill else None,
    )


def with_runaway(workload: Workload, rng: random.Random) -> Workload:
    """The workload with a row that is so far ahead of time that its stream's watermark runs away."""
    early = range(len(workload.epochs) // 2 + 1)
    places = [(e, n) for e in early for n, table in workload.epochs[e].items() if table.num_rows]
    if not places:
        return workload
    epoch, name = rng.choice(places)
    table = workload.epochs[epoch][name]
    row = rng.randrange(table.num_rows)
    times = table.column("t").cast(pa.int64()).to_pylist()
    # Not so far that it would count as one from the future.
    ahead = None if times[row] is None else times[row] + _RUNAWAY
    rows = {**workload.epochs[epoch], name: _with_time(table, row, ahead)}
    epochs = (*workload.epochs[:epoch], rows, *workload.epochs[epoch + 1 :])
    return replace(workload, epochs=epochs)


def draw_terms(rng: random.Random, query: Query) -> Query:
    """A query on other terms; pairs that have a window keep one."""
    lateness = [Micros(rng.choice((0, 2, 5, 20)) * SECOND) for _ in query.streams]
    changes = rng.random() < 0.8
    factors = [rng.choice((0.25, 0.5, 0.9, 1.5, 2.5)) if changes else 1.0 for _ in query.windows.widths]
    same = rng.random() < 0.5
    scaled = {
        (a, b): Micros(round(width * (factors[0] if same else factor)))
        for (a, b, width), factor in zip(query.windows.widths, factors, strict=True)
    }
    return replace(
        query,
        streams=tuple(replace(s, lateness=value) for s, value in zip(query.streams, lateness, strict=True)),
        windows=imply_windows(query.names, None, scaled),
        # What is aggregated stays.
        outputs=_draw_outputs(rng, query) if query.aggregation is None else query.outputs,
    )


def _draw_outputs(rng: random.Random, query: Query) -> tuple[Output, ...]:
    # The first one stays, so that results on all terms can be compared.
    first, *others = query.outputs
    chosen = [first, *rng.sample(others, rng.randint(0, len(others)))]
    renames = rng.random() < 0.5
    outputs = [replace(o, name=f"{o.name}_{i}") if renames else o for i, o in enumerate(chosen)]
    return tuple(rng.sample(outputs, len(outputs)))


def _query(rng: random.Random, names: Sequence[str]) -> Query:
    graph = rng.choice(("chain", "star", "two keys", "two keys", "two keys", "cycle"))
    if graph == "star":
        predicates = [f"{names[0]}.k = {name}.k" for name in names[1:]]
    else:
        keys = ("k", "k2") if graph == "two keys" else ("k",)
        chosen = [(a, b, rng.choice(keys)) for a, b in pairwise(names)]
        predicates = [f"{a}.{key} = {b}.{key}" for a, b, key in chosen]
    if graph == "cycle":
        predicates.append(f"{names[0]}.k2 = {names[-1]}.k2")
    for _ in range(rng.choice((0, 0, 1, 2))):
        x, y = rng.sample(names, 2)
        predicates.append(rng.choice(RESIDUALS).format(x=x, y=y))
    pairs: dict[tuple[str, str], Micros] = {}
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        a, b = sorted(rng.sample(names, 2))
        pairs[a, b] = Micros(rng.choice((0, 2, 5, 10, 20)) * SECOND)
    default_window = None if rng.random() < 0.15 else Micros(rng.randint(3, 25) * SECOND)
    streams = [stream(name, Shape(lateness=Micros(rng.choice((0, 2, 5, 20)) * SECOND))) for name in names]
    extras = rng.sample(sorted(_EXTRAS), rng.choice((0, 0, 1, 3, len(_EXTRAS))))
    if "day" in extras and rng.random() < 0.5:
        x, y = rng.sample(names, 2)
        predicates.append(f"{x}.day <= {y}.day OR {x}.v > 3")
    streams = [replace(declared, schema=_with_extras(declared.schema, extras)) for declared in streams]
    items = [f"{name}.id" for name in names]
    return build_query(streams, predicates, default_window=default_window, pairs=pairs, select=items)


def _with_extras(schema: pa.Schema, extras: Sequence[str]) -> pa.Schema:
    return pa.schema([*schema, *((name, _TYPES_OF_NUMBERS.get(name, _EXTRAS[name][0])) for name in extras)])


def _fill(rng: random.Random, query: Query, name: str, table: pa.Table) -> pa.Table:
    """Rows with values of all columns, and now and then a wrong time."""
    for field_ in list(query.by_name[name].schema)[table.num_columns :]:
        kind, values = _EXTRAS[field_.name]
        drawn = pa.array([rng.choice(values) for _ in range(table.num_rows)], kind)
        table = table.append_column(field_.name, drawn.cast(field_.type) if kind != field_.type else drawn)
    if table.num_rows and rng.random() < _WRONG_TIME_RATE:
        table = _with_time(table, rng.randrange(table.num_rows), rng.choice(_WRONG_TIMES))
    return table


def _with_time(table: pa.Table, row: int, time: int | None) -> pa.Table:
    """The table with another time of one row."""
    times = table.column("t").cast(pa.int64()).to_pylist()
    times[row] = time
    position, time_type = table.column_names.index("t"), table.schema.field("t").type
    return table.set_column(position, "t", pa.array(times, pa.int64()).cast(time_type))


def _window_epochs(query: Query, epochs: int) -> int:
    """In how many of the epochs a row may find matches."""
    widths = [width for *_, width in query.windows.widths]
    if len(widths) < _pairs(query):
        return epochs
    return min(epochs, 1 + 2 * max(widths) // (_EPOCH_SECONDS * SECOND))


def _pairs(query: Query) -> int:
    return len(list(combinations(query.names, 2)))


def _shape(rng: random.Random, keys: int, hot: float, epochs: int) -> Shape:
    quiet = rng.randint(0, epochs)
    return Shape(
        rows=rng.randint(_ROWS_PER_EPOCH - 3, _ROWS_PER_EPOCH + 3),
        keys=keys,
        hot=hot,
        lateness=Micros(rng.choice((0, 2, 5)) * SECOND),
        late=rng.choice((0.0, 0.1)),
        null_keys=rng.choice((0.0, 0.1)),
        null_times=rng.choice((0.0, 0.05)),
        duplicates=rng.choice((0.0, 0.1)),
        # Consecutive epochs, so that a stream may become idle.
        silent=frozenset(range(quiet, quiet + rng.choice((0, 0, 2, 5)))),
    )
