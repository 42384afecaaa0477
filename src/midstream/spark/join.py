"""The builder of a join: which streams are joined, on what and how far apart, and what is selected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from pyarrow import types
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from midstream.aggregate.read_aggregation import check_output_time, read_aggregation
from midstream.aggregate.user_function import UserCall
from midstream.aggregate.window import Window
from midstream.errors import OptionError, QueryError, show_value
from midstream.plan.build_layout import build_layout
from midstream.plan.explain import explain
from midstream.plan.explain_sites import SITED_FORMS, explain_sited_as
from midstream.plan.tree import parse_plan
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.site_description import SiteDescription
from midstream.query.stream import Stream, check_name
from midstream.query.types import show_type
from midstream.sites.planner import first_plan
from midstream.spark.declared_watermark import declared_watermark, lateness_of, time_of
from midstream.spark.join_arguments import (
    NO_FRAME,
    check_aggregates,
    check_frame,
    check_groups,
    check_inner,
    check_no_names,
    check_not_grouped,
    check_session,
    check_session_runs,
    check_texts,
    equalities,
    without_how,
)
from midstream.spark.missing_methods import missing_attribute, missing_attribute_of_groups
from midstream.spark.schema import arrow_schema, spark_schema
from midstream.spark.stateful_operators import check_stateless
from midstream.spark.writer import JoinStreamWriter
from midstream.values import Micros, duration

_EXPLAIN_HINT = "write explain() or explain('(a b) c')"
# What explain prints elsewhere. No plan has just one name.
_OTHER_MODES = {
    "adaptive": "ask the running query, which start() returns: query.explain('adaptive')",
    **dict.fromkeys(("formatted", "cost", "codegen"), "for a stream of its own, write df.explain(mode=...)"),
}


@dataclass(frozen=True, repr=False)
class Join:
    """A continuous join of two or more streaming DataFrames.

    Each method returns a new ``Join``, as methods of a DataFrame return a new DataFrame. Nothing runs
    before ``writeStream...start()``.
    """

    spark: SparkSession
    _streams: tuple[Stream, ...] = ()
    _frames: dict[str, DataFrame] = field(default_factory=dict)
    _predicates: tuple[str, ...] = ()
    _everywhere: Micros | None = None
    _pairs: dict[tuple[str, str], Micros] = field(default_factory=dict)
    _select: tuple[str, ...] = ()
    _cross: bool = False
    _groups: tuple[str | Window, ...] | None = None
    _aggregates: tuple[str | UserCall, ...] = ()
    _sites: SiteDescription = field(default_factory=SiteDescription)

    def __post_init__(self) -> None:
        check_session(self.spark)

    def stream(
        self,
        name: str,
        df: DataFrame = NO_FRAME,
        *,
        time: str | Column | None = None,
        lateness: str | timedelta | None = None,
        site: str | None = None,
    ) -> Join:
        """Add a stream.

        Args:
            name: What predicates, windows and outputs call it.
            df: Any streaming DataFrame; the same one may be added under several names.
            time: Its event-time column, a timestamp; may be a nested field. Left out, it is the column of
                ``df.withWatermark``.
            lateness: How far behind the latest row of earlier batches a row may be. Later rows are
                counted and, with option ``lateRows``, kept aside. Left out, it is the delay of
                ``df.withWatermark``, or else zero.
            site: Where it arrives, e.g. ``"frankfurt"``, if links between sites are slow. Left out, it
                arrives where the results are wanted.
        """
        check_frame(name, df)
        check_name(name, self._frames)
        check_stateless(name, df)
        schema = arrow_schema(name, df)
        declared = declared_watermark(df)
        ref = time_of(name, schema, time, declared)
        stream = Stream(name, schema, ref, lateness_of(name, lateness, declared))
        if not types.is_timestamp(stream.type_of(ref)):
            raise QueryError(
                "the time of a stream must be a timestamp",
                got=f"{ref} of type {show_type(stream.type_of(ref))}",
                hint="cast it in the DataFrame, e.g. withColumn('at', timestamp_millis('at_ms'))",
            )
        sites = self._sites if site is None else self._sites.with_stream(name, site)
        frames = {**self._frames, name: df}
        return replace(self, _streams=(*self._streams, stream), _frames=frames, _sites=sites)

    def link(self, *sites: str, latency: str, bandwidth: str) -> Join:
        """Describe the link between two sites, or without ``sites`` that between all other pairs.

        For example ``link("frankfurt", "oregon", latency="80 ms", bandwidth="50 mbit")``. Plans depend on
        it, results never do.
        """
        return replace(self, _sites=self._sites.with_link(sites, latency, bandwidth))

    def sink_site(self, site: str) -> Join:
        """Say at which site the results are wanted. Left out, it is that of the first stream."""
        return replace(self, _sites=self._sites.with_sink(site))

    def site(self, name: str, *, partitions: int) -> Join:
        """Say how many engine partitions a site has, which are joined in parallel; left out, it has one."""
        return replace(self, _sites=self._sites.with_site(name, partitions))

    def on(self, *predicates: str | list[str], how: str = "inner") -> Join:
        """Add predicates, e.g. ``on("orders.id = payments.order_id")``; all of them must hold.

        Equalities between columns of two streams decide which rows meet. Any other condition over
        two or more streams filters their combinations. A list of names, ``on(["id"])``, makes the columns of
        these names equal in all streams so far. The join is an inner one.
        """
        check_inner(how)
        texts: list[str] = []
        for predicate in without_how(predicates):
            texts += equalities(predicate, self._streams) if isinstance(predicate, list) else [predicate]
        check_texts("a predicate", texts, hint="write on('a.x = b.y')")
        check_no_names(texts, self._streams)
        return replace(self, _predicates=(*self._predicates, *texts))

    def within(self, bound: str | timedelta, *streams: str) -> Join:
        """Bound how far apart in event time the rows of a result may be.

        ``within("30 minutes")`` holds for every pair of streams; ``within("5 minutes", "a", "b")`` for
        one pair, instead of what holds for all. Pairs without a window get what the others imply.
        """
        micros = duration(bound, "a window")
        if not streams:
            return replace(self, _everywhere=micros)
        if len(streams) != 2 or len(set(streams)) != 2:
            raise QueryError(
                "a window must be for all streams or for two of them",
                got=" and ".join(map(show_value, streams)),
                hint="write within('5 minutes', 'a', 'b') for two, and within('5 minutes') for all",
            )
        unknown = [show_value(name) for name in streams if name not in self._frames]
        if unknown:
            raise QueryError(
                "a window must be for streams of the join",
                got=", ".join(unknown),
                hint=f"the streams so far are {', '.join(self._frames)}"
                if self._frames
                else "add the streams first, with .stream(name, df, time=...)",
            )
        pair = (min(streams), max(streams))
        return replace(self, _pairs={**self._pairs, pair: micros})

    def select(self, *items: str | list[str]) -> Join:
        """Choose the columns of the result: ``stream.column``, ``stream.column AS name`` or ``stream.*``.

        Without it the result has every column of every stream. A column without a name is called
        ``<stream>_<column>``.
        """
        texts = [text for item in items for text in (item if isinstance(item, list) else [item])]
        check_texts("a select item", texts, hint="write select('a.x', 'b.y AS z')")
        check_not_grouped(self._groups is not None)
        return replace(self, _select=(*self._select, *texts))

    def groupBy(self, *groups: str | Window | list[str | Window]) -> GroupedJoin:  # noqa: N802  # Spark's name
        """Group the results by columns, ``stream.column`` or ``stream.column AS name``, and by a window.

        For example ``groupBy("orders.region", window("10 minutes", "1 minute"))``. What is computed of each
        group, ``agg(...)`` says.
        """
        return GroupedJoin(
            self, check_groups(groups, selected=bool(self._select), grouped=self._groups is not None)
        )

    groupby = groupBy

    def cross(self) -> Join:
        """Allow parts without any equality between them: every row of one meets every row of the other."""
        return replace(self, _cross=True)

    def query(self) -> Query:
        """The join as a checked value; raises the first error that is found."""
        check_session_runs(self.spark)
        aggregation = None
        if self._groups is not None:
            aggregation = read_aggregation(self._groups, self._aggregates, self._streams)
        query = build_query(
            self._streams,
            self._predicates,
            default_window=self._everywhere,
            pairs=self._pairs,
            select=self._select,
            cross=self._cross,
            zone=str(self.spark.conf.get("spark.sql.session.timeZone")),
            aggregation=aggregation,
            topology=self._sites.topology([stream.name for stream in self._streams]),
        )
        check_output_time(query)
        return query

    @property
    def frames(self) -> Mapping[str, DataFrame]:
        """The DataFrames of the streams."""
        return self._frames

    @property
    def schema(self) -> StructType:
        """The columns of the results and their types."""
        return spark_schema(self.query().output_schema)

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the results."""
        return self.schema.names

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """The names of the columns of the results, and their types as text."""
        return [(field.name, field.dataType.simpleString()) for field in self.schema.fields]

    @property
    def isStreaming(self) -> bool:  # noqa: N802  # Spark's name
        """True: results come for as long as rows of the streams do."""
        return True

    def printSchema(self) -> None:  # noqa: N802  # Spark's name
        """Print the columns of the results and their types."""
        print(self.schema.treeString())

    def explain(
        self, plan: str | bool | None = None, *, extended: bool | str | None = None, mode: str | None = None
    ) -> None:
        """Print how the join would run, with the default plan or with ``plan``.

        ``explain(True)``, or ``explain("extended")``, prints Spark's own plans of the streams as well. As in
        Spark, that may also be said as ``extended=True`` or ``mode="extended"``.
        """
        given = [one for one in (plan, extended, mode) if one is not None]
        if len(given) > 1:
            raise OptionError(
                "explain must have one argument", got=" and ".join(map(show_value, given)), hint=_EXPLAIN_HINT
            )
        print(self.explanation(*given))

    def explanation(self, plan: str | bool | None = None) -> str:
        """The text that ``explain`` prints."""
        query = self.query()
        if plan is True or plan == "extended":
            frames = (f"Stream {name}:\n{_spark_plans(df)}" for name, df in self._frames.items())
            return "\n\n".join((self.explanation(), *frames))
        if plan is None or plan is False or plan == "simple":
            chosen = first_plan(query)
        elif plan in SITED_FORMS:
            return explain_sited_as(str(plan), query, first_plan(query))
        elif isinstance(plan, str) and plan not in _OTHER_MODES:
            chosen = parse_plan(plan, query.names)
        else:
            raise OptionError(
                "explain must have a plan of the streams, True, 'simple' or 'extended'",
                got=show_value(plan),
                hint=_OTHER_MODES.get(str(plan), _EXPLAIN_HINT),
            )
        return explain(query, build_layout(query, chosen), {})

    if not TYPE_CHECKING:  # a type checker must not believe that there are any others

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(name, self)

    def __repr__(self) -> str:
        return f"<Join {', '.join(self._frames) or 'without streams'}>"

    @property
    def writeStream(self) -> JoinStreamWriter:  # noqa: N802  # Spark's name
        """Where the results go; ends with ``start()``."""
        return JoinStreamWriter(self.spark, self.query(), dict(self._frames))


@dataclass(frozen=True)
class GroupedJoin:
    """The results of a join in groups: ``agg`` says what is computed of each."""

    join: Join
    groups: tuple[str | Window, ...]

    def agg(self, *items: str | UserCall) -> Join:
        """Compute aggregates of each group and window, each with a name: ``agg("count(*) AS n")``.

        One that is user-defined (``udaf``) is written ``my_median("payments.amount").alias("middle")``.

        A window comes out once, when no result of it can come any more; with ``outputMode("update")`` each
        group does whenever it changes. Its columns are those of ``groupBy``, where a window is a struct
        ``window`` of ``start`` and ``end``, and then the aggregates.
        """
        return replace(self.join, _groups=self.groups, _aggregates=check_aggregates(items))

    def count(self) -> Join:
        """How many results each group and window has, as a column ``count``."""
        return self.agg("count(*) AS count")

    if not TYPE_CHECKING:  # a type checker must not believe that there are any others

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute_of_groups(name, self)


def _spark_plans(df: DataFrame) -> str:
    """What ``df.explain(True)`` prints."""
    utils = df.sparkSession.sparkContext._jvm.PythonSQLUtils  # type: ignore[union-attr]  # set while it lives
    return str(utils.explainString(df._jdf.queryExecution(), "extended")).strip()
