"""Whether DataFrames of another definition have the rows that a running query reads.

A running query goes on with the DataFrames that it was started with. So those of a definition that is to
replace its own must say the same, as far as the new definition uses it: otherwise a filter that was changed
in a DataFrame would take effect at the next start only.

Plans are compared as Spark simplifies them, without the ids of expressions, and without columns that nobody
uses. A source that is read anew, with the same format, options and columns, is the same source. What Spark
cannot tell apart is the same, such as one Python function in two plans; what it can is not, even if both
would have the same rows. Two things that Spark leaves out count besides: the names of columns, and which
files a static table had when its DataFrame was made, as these are the ones that are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from midstream.errors import InternalError, QueryError
from midstream.spark.logical_plan import WATERMARK_NODE, elements, is_source, kind_of, nodes_below, nodes_of

_FIND_COLUMNS_BY_NAME = frozenset(("parquet", "orc", "avro"))
"""Formats in which a column does not depend on which others are read."""
_FIND_FIELDS_BY_NAME = frozenset(("json", "xml"))
"""Formats in which it does, but not on their order."""
_IN_MEMORY = "memory"
"""The format of streams of values that a program has in memory: no options say which of them it is."""
_UNSHOWN = re.compile(r"#\d+L?|^~")
"""Ids of expressions, and the mark of a plan of streams."""
_SHOWN_FIELDS = 25


def check_same_rows(
    running: Mapping[str, DataFrame],
    given: Mapping[str, DataFrame],
    columns: Mapping[str, Collection[str]],
) -> None:
    """Refuse DataFrames that have other rows than the running ones, in the columns that are read of each."""
    shared = [name for name in columns if name in running]
    compared = ((name, _difference(running[name], given[name], columns[name])) for name in shared)
    if found := [f"{difference} in the one of stream {name}" for name, difference in compared if difference]:
        raise QueryError(
            "a running query goes on with the DataFrames that it was started with, and those of another "
            "definition must have the same rows",
            got="; ".join(found),
            hint="put a condition over several streams into the join instead; or stop the query, and "
            "start the new one with the same checkpointLocation and the option 'replace', which reads the "
            "new DataFrames from then on",
        )


def _difference(running: DataFrame, given: DataFrame, columns: Collection[str]) -> str:
    """What differs; nothing if both have the same rows in these columns."""
    lacking = sorted(set(columns) - set(running.columns))
    if lacking:
        return f"a column {lacking[0]} that it did not have"
    try:
        jvm = running.sparkSession._jvm
        before, after = (frame._jdf.queryExecution().analyzed() for frame in (running, given))
        # Of results that are the same to Spark, columns have any names.
        if running.columns == given.columns and before.sameResult(after):
            return _difference_of_tables(jvm, before, after)
        was, now = (_Form.of(jvm, plan) for plan in _simplified(running, given, sorted(columns)))
        return now.difference_from(was) or _difference_of_tables(jvm, was.plan, now.plan)
    except (Py4JError, PySparkException, InternalError) as error:  # these are internals of Spark
        return f"one that cannot be compared ({type(error).__name__})"


def _difference_of_tables(jvm: Any, before: Any, after: Any) -> str:
    """What differs in the files of static tables, in two plans that are the same apart from that."""
    for was, now in zip(_tables(before), _tables(after), strict=True):
        if was.sizeInBytes() != now.sizeInBytes() or not _names(jvm, was).equals(_names(jvm, now)):
            return f"other files than there were in the static table {now.rootPaths().mkString(', ')}"
    return ""


def _tables(plan: Any) -> Iterator[Any]:
    """The files of each static table that a plan reads, also in conditions."""
    for part in (plan, *elements(plan.subqueriesAll())):
        for node in nodes_below(part):
            if kind_of(node) == "LogicalRelation" and kind_of(node.relation()) == "HadoopFsRelation":
                yield node.relation().location()


def _names(jvm: Any, table: Any) -> Any:
    """The names of files, which may be listed in any order: a set of the JVM's, as there may be many."""
    arrays = getattr(getattr(jvm.scala.collection.immutable, "ArraySeq$"), "MODULE$")
    return arrays.unsafeWrapArray(table.inputFiles()).toSet()


def _simplified(running: DataFrame, given: DataFrame, columns: Collection[str]) -> list[Any]:
    """What each of two DataFrames does for some columns, as Spark's optimizer has it.

    They are optimized in one plan: what depends on the time is then the same in both.
    """
    names = ["`" + column.replace("`", "``") + "`" for column in columns]
    before, after = (_without_watermarks(frame.select(*names)) for frame in (running, given))
    optimizer = running.sparkSession._jsparkSession.sessionState().optimizer()
    both = optimizer.execute(before.crossJoin(after)._jdf.queryExecution().analyzed())
    if kind_of(both) != "Join":
        raise InternalError("Spark's plan of a cross join must be a join", got=kind_of(both))
    return list(elements(both.children()))


def _without_watermarks(frame: DataFrame) -> DataFrame:
    """The same rows; watermarks have ids of their own, and are compared as the lateness of the stream."""
    if all(kind_of(node) != WATERMARK_NODE for node in nodes_of(frame)):
        return frame
    session = frame.sparkSession
    jvm: Any = session._jvm
    plan = _transformed(jvm, frame._jdf.queryExecution().analyzed(), _without_watermark)
    of_rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows
    return DataFrame(of_rows(session._jsparkSession, plan), session)


def _without_watermark(node: Any) -> Any:
    while kind_of(node) == WATERMARK_NODE:
        node = node.child()
    return node


def _transformed(jvm: Any, node: Any, change: Callable[[Any], Any]) -> Any:
    """A plan in which each node is changed, from the top."""
    node = change(node)
    children = [_transformed(jvm, child, change) for child in elements(node.children())]
    return node.withNewChildren(jvm.PythonUtils.toSeq(children)) if children else node


@dataclass(frozen=True)
class _Source:
    """What a plan reads a stream from."""

    format: str
    options: Mapping[str, str]
    columns: tuple[tuple[str, str], ...]
    """The names and types of those that count; in their order, if that does."""
    handle: Any | None
    """The object itself, if nothing else says which it is."""

    @classmethod
    def of(cls, jvm: Any, leaf: Any, columns: Iterable[Any]) -> _Source:
        """The source of a leaf, of which the plan uses some columns."""
        handle = None
        if kind_of(leaf) == "StreamingRelation":
            source = leaf.dataSource()
            name, table = str(source.className()), source.catalogTable()
            options = dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options()))
            given = [options.pop(key) for key in list(options) if key.lower() == "path"]
            paths = given + [str(path) for path in elements(source.paths())]
            options |= {"path": ", ".join(_qualified(jvm, source, path) for path in paths)} if paths else {}
            options |= {"table": str(table.get().identifier().toString())} if table.isDefined() else {}
        else:
            name, options = str(leaf.sourceName()), dict(leaf.extraOptions())
            if leaf.identifier().isDefined():
                options["table"] = f"{leaf.catalog().get().name()}.{leaf.identifier().get().toString()}"
            handle = leaf.table() if name == _IN_MEMORY else None
        if name not in _FIND_COLUMNS_BY_NAME:
            columns = elements(leaf.output())
        types = _types(columns)
        if name in _FIND_FIELDS_BY_NAME:
            types = tuple(sorted(types))
        return cls(name, {key.lower(): value for key, value in options.items()}, types, handle)

    def difference_from(self, other: _Source) -> str:
        """What differs from the source that a stream had. Values of options may be secret."""
        if self.format != other.format:
            return f"format {self.format} instead of {other.format}"
        changed = sorted(
            key for key in {*self.options, *other.options} if self.options.get(key) != other.options.get(key)
        )
        if "path" in changed:
            return f"path {self.options.get('path')} instead of {other.options.get('path')}"
        if changed:
            return f"another value of {changed[0]}"
        return "" if self.handle == other.handle else f"another source of format {self.format}"


@dataclass(frozen=True)
class _Form:
    """A plan in which the sources of streams are empty tables, so that it says only what becomes of rows."""

    plan: Any
    steps: tuple[str, ...]
    """What it does, for those who read it."""
    sources: tuple[_Source, ...]

    @classmethod
    def of(cls, jvm: Any, plan: Any) -> _Form:
        """The form of an optimized plan."""
        used, steps = plan.outputSet(), []
        for node in nodes_below(plan):
            used = getattr(used, "$plus$plus")(node.references())
            if not is_source(node):
                steps.append(_UNSHOWN.sub("", str(node.simpleString(_SHOWN_FIELDS))))
        sources: list[_Source] = []
        tables = getattr(
            getattr(jvm.org.apache.spark.sql.catalyst.plans.logical, "LocalRelation$"), "MODULE$"
        )

        def emptied(node: Any) -> Any:
            if not is_source(node):
                return node
            columns = sorted(
                (column for column in elements(node.output()) if used.contains(column)),
                key=lambda column: str(column.name()),
            )
            sources.append(_Source.of(jvm, node, columns))
            # By name: that the source has other columns besides does not matter.
            return tables.apply(jvm.PythonUtils.toSeq(columns))

        return cls(_transformed(jvm, plan, emptied), tuple(steps), tuple(sources))

    def difference_from(self, other: _Form) -> str:
        """What differs from another form; nothing if both have the same rows."""
        for source, before in zip(self.sources, other.sources, strict=False):
            if difference := source.difference_from(before):
                return difference
        now, was = ([source.columns for source in form.sources] for form in (self, other))
        if now == was and self.plan.sameResult(other.plan):
            return ""
        new = [step for step in self.steps if step not in other.steps]
        old = [step for step in other.steps if step not in self.steps]
        if new or old:
            return f"{', '.join(new) or 'nothing'} instead of {', '.join(old) or 'nothing'}"
        if now != was:
            return f"sources with columns {_show(now)} instead of {_show(was)}"
        return f"{', '.join(self.steps)}, of which Spark cannot say that it computes the same"


def _types(columns: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(column.name()), str(column.dataType().sql())) for column in columns)


def _qualified(jvm: Any, source: Any, path: str) -> str:
    """A path as a source of files has it, however it was written."""
    folder = jvm.org.apache.hadoop.fs.Path(path)
    config = source.sparkSession().sessionState().newHadoopConfWithOptions(source.options())
    return str(folder.getFileSystem(config).makeQualified(folder).toString())


def _show(sources: Iterable[Iterable[tuple[str, str]]]) -> str:
    return "; ".join(", ".join(f"{name} {kind}" for name, kind in columns) for columns in sources)
