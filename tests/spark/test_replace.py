"""Another definition for a query that runs on Spark: exact by every strategy, over restarts, and reported."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import Join, window
from midstream.errors import MidstreamError
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import accept, assert_same_rows, generate
from midstream.testing.aggregate_oracle import assert_same_windows
from midstream.testing.expected import Expected
from midstream.testing.reference import AcceptRules
from tests.replace.replacement_run import results_between
from tests.spark.feed import input_of_batches
from tests.spark.migration_scenario import ASKED, ONE_KEY, SEVERAL_KEYS, SHAPE, columns, rows
from tests.spark.runner import join_streams

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("time_for_one_epoch_in_the_background")]


class Replacing:
    """Asks for another definition while a query runs, and notes what becomes of it."""

    def __init__(self, scenario, new, strategy, **options) -> None:
        self.scenario = scenario
        self.new = new
        self.strategy = strategy
        self.options = options
        self.asked = False
        self.until: int | None = None
        self.phases: dict[int, str] = {}

    def look(self, query, point):
        manifest = query._handler.manifest
        if point == "before the step" and manifest.epoch == ASKED and not self.asked:
            self.asked = True
            query.replace(self.new(), self.strategy, **self.options)
        step = manifest.replacement
        if step is not None:
            self.phases[manifest.epoch] = "live" if step.live_since is not None else "catches up"
            self.until = step.until
        if manifest.ended_replacement is not None:
            self.phases[manifest.epoch] = "ended"

    def check(self, old, new, got, others=None):
        """The old definition has the results until the hand-over, the new one those after it."""
        scenario = self.scenario
        epochs = input_of_batches(scenario.feed, scenario.runner.checkpoint)
        tables = accept(old, epochs).tables(old)
        assert self.until is not None
        of_old = results_between(old, tables, None, self.until)
        of_new = results_between(new, accept(new, epochs).tables(new), self.until, None)
        assert min(of_old.num_rows, of_new.num_rows) > 20
        if others is None:
            assert_same_rows(got, pa.concat_tables([of_old, of_new]))
        else:
            assert_same_rows(got, of_old)
            assert_same_rows(others, of_new)
        assert fsck(LocalStore(str(scenario.runner.checkpoint))).problems == ()


@pytest.mark.parametrize(
    ("strategy", "source"),
    [
        ("generalized_moving_state", rows),
        ("generalized_parallel_track", columns),
        ("generalized_hybrid", columns),
    ],
)
def test_a_query_gets_another_definition_while_it_runs(scenario, strategy, source):
    def new():
        return scenario.join(SEVERAL_KEYS, source).on("a.id <> d.id").within("12 seconds")

    replacing = Replacing(scenario, new, strategy)
    join = scenario.join_of(SEVERAL_KEYS, source)
    query = scenario.run(join=join, look=replacing.look, epochs=9)
    assert list(dict.fromkeys(replacing.phases.values()))[-2:] == ["live", "ended"]
    assert query.isActive is False
    replacing.check(join().query(), new().query(), scenario.runner.results())


def test_what_cannot_be_is_refused_before_anything_happens(scenario, tmp_path, capsys):
    def wider():
        return scenario.join(ONE_KEY, rows).select("a.t AS at")

    errors: list[str] = []
    texts: list[str] = []

    def look(query, point):
        if point != "before the step" or errors:
            return
        path = str(tmp_path / "elsewhere")
        with_path = {"path": path}
        asked = [with_path, with_path | {"strategy": "generalized_parallel_track"}]
        for options in (dict[str, str](), *asked, {"strategy": "hybrid"}):
            with pytest.raises(MidstreamError) as error:
                query.replace(wider(), **options)
            errors.append(str(error.value))
        keyed = scenario.join(ONE_KEY, rows).on("a.k2 = b.k2")
        with pytest.raises(MidstreamError, match=r"plain Parquet files; got a\.k, a\.k2, b\.k, "):
            query.replace(keyed, "generalized_parallel_track")
        renamed = scenario.join(ONE_KEY, rows).select("a.id AS x")
        own = query._handler._outputs._path
        for folder in (f"{scenario.runner.checkpoint}/spark", own):
            with pytest.raises(MidstreamError, match=r"of (its|their) own"):
                query.replace(renamed, path=folder)
            query.explain_replace(renamed, path=folder)
            assert "\nRefused while the query runs: " in capsys.readouterr().out
        for no_folder in ("s3://bucket/elsewhere", "~/elsewhere", "", 7):
            for ask in (query.replace, query.explain_replace):
                with pytest.raises(MidstreamError, match="path must "):
                    ask(renamed, path=no_folder)
        for no_join in ("a.k > b.k", renamed.writeStream, Join):
            with pytest.raises(MidstreamError, match="must be a join, as it is before writeStream"):
                query.replace(no_join)
        more = scenario.join(ONE_KEY, rows).stream("e", scenario.feed.df("a"), time="t").on("a.k = e.k")
        with pytest.raises(MidstreamError, match="must use only streams that the query reads; got stream e"):
            query.replace(more)
        # The condition is of a DataFrame, which the running query does not look at.
        filtered = scenario.join(ONE_KEY, lambda df: df.where("v > 1")).within("12 seconds")
        with pytest.raises(MidstreamError, match=r"same rows; got .*\(v > 1\)\) inst.* stream a;") as error:
            query.replace(filtered)
        query.explain_replace(filtered)
        assert f"\nRefused while the query runs: {error.value}\n" in capsys.readouterr().out
        query.explain_replace(scenario.join(ONE_KEY, rows).within("12 seconds"))
        assert "Refused" not in capsys.readouterr().out
        query.explain_replace(wider())
        texts.append(query.explanation())

    query = scenario.run(join=scenario.join_of(ONE_KEY, rows), look=look, epochs=2)
    assert "must have a place of their own" in errors[0]
    assert "none of a.t" in errors[1]
    assert "strategy='generalized_parallel_track'" in errors[1]
    assert "unless all streams are plain Parquet files; got a.t. Hint:" in errors[2]
    assert "the option 'replace'" in errors[2]
    assert "must be one of generalized_hybrid" in errors[3]
    assert "Replacement" not in texts[0]
    assert query.lastProgress["replacement"] is None


def test_columns_of_late_rows_are_those_that_the_running_query_reads(scenario, tmp_path):
    """Late rows are written whole, so all columns of a DataFrame are read."""
    refused: list[str] = []

    def join(source=columns, seconds=9, without="v"):
        join = Join(scenario.spark)
        for name in "ab":
            folder = str(scenario.feed.root / name)
            schema = scenario.feed.df(name).drop(without).schema
            frame = source(scenario.spark.readStream.schema(schema).parquet(folder))
            join = join.stream(name, frame, time="t")
        return join.on("a.k = b.k").within(f"{seconds} seconds").select("a.id", "b.id")

    def look(query, point):
        if point == "before the step" and not refused:
            for changed in ({"without": "nothing"}, {"source": lambda df: df.withColumn("k2", df.k)}):
                try:
                    query.replace(join(seconds=12, **changed))
                except MidstreamError as error:
                    refused.append(str(error))

    scenario.run(join=join, look=look, epochs=1, lateRows=tmp_path / "late")
    assert "that its streams had when it was started; got a.v." in refused[0]
    assert "AS k2" in refused[1]


def test_what_begins_at_a_start_may_have_been_asked_for_before(scenario, tmp_path):
    """Results of the old definition stay where they are; a stream is not added while a plan waits."""
    elsewhere = tmp_path / "elsewhere"

    def old():
        return scenario.join(ONE_KEY).within("25 seconds")

    def new():
        return old().select("a.t AS at", "a.v AS av")

    def with_another():
        join = old().stream("e", scenario.feed.df("a"), time="t", lateness="5 seconds")
        return join.on("a.k = e.k")

    def ask_for_a_plan(query, point):
        if point == "before the step" and query._handler.manifest.epoch == 0:
            query.migrate("a (b (c d))", "moving_state")

    scenario.run(join=old, look=ask_for_a_plan, epochs=2)
    with pytest.raises(MidstreamError, match="must be added by a replacement that can begin at once"):
        scenario.run(join=with_another, look=lambda *_: None, epochs=0, replace="generalized_hybrid")
    replacing = Replacing(scenario, new, "generalized_parallel_track", path=elsewhere)
    scenario.run(join=old, look=replacing.look, epochs=ASKED)
    assert replacing.asked
    scenario.run(join=new, look=replacing.look, epochs=2, path=str(elsewhere))
    scenario.run(join=old, look=replacing.look, epochs=6)
    others = pa.concat_tables(map(pq.read_table, sorted(elsewhere.glob("*.parquet"))))
    replacing.check(old().query(), new().query(), scenario.runner.results(), others)


def test_results_of_another_schema_go_to_a_path_of_their_own_over_restarts(scenario, tmp_path):
    elsewhere = tmp_path / "elsewhere"

    def old():
        return scenario.join(ONE_KEY).within("25 seconds")

    def new():
        return old().select("a.t AS at", "a.v AS av")

    refused: list[str] = []

    def look(query, point):
        replacing.look(query, point)
        if point == "after the commit" and query._handler.manifest.ended_replacement is not None:
            # Its results are not published, but the folder is that of the query.
            with pytest.raises(MidstreamError, match="a folder of their own") as error:
                query.replace(old(), "generalized_parallel_track", path=elsewhere)
            refused.append(str(error.value))

    # As for the option of a writer, any form of a path will do.
    replacing = Replacing(scenario, new, "generalized_parallel_track", path=f"file:{elsewhere}/")
    scenario.run(join=old, look=replacing.look, epochs=5)
    assert set(replacing.phases.values()) == {"live"}
    # Neither of them goes with the path of the other one.
    for join, path in ((new, None), (old, elsewhere), (new, tmp_path / "third")):
        options = {} if path is None else {"path": str(path)}
        with pytest.raises(MidstreamError, match="definition must be started with its own path"):
            scenario.runner.start(join(), partitions=2, **options)
    # With the new definition and its path, then with the old one and its own.
    scenario.run(join=new, look=replacing.look, epochs=1, path=str(elsewhere))
    assert set(replacing.phases.values()) == {"live"}
    scenario.run(join=old, look=look, epochs=5)
    assert len(refused) == 1
    assert "ended" in replacing.phases.values()
    query = scenario.run(join=new, look=replacing.look, epochs=2, path=str(elsewhere))
    assert query.lastProgress["replacement"] is None
    others = pa.concat_tables([pq.read_table(path) for path in sorted(elsewhere.glob("*.parquet"))])
    replacing.check(old().query(), new().query(), scenario.runner.results(), others)


def test_a_definition_that_differs_at_a_start_replaces_the_old_one_if_asked_to(scenario):
    def old():
        return scenario.join(ONE_KEY, rows).within("25 seconds")

    def new():
        return old().on("a.v <= c.v + 3")

    scenario.run(join=old, epochs=4)
    with pytest.raises(MidstreamError, match="a query must go on with what its checkpoint was made with"):
        scenario.runner.start(new(), partitions=2)
    with pytest.raises(MidstreamError, match="must find the columns"):
        scenario.runner.start(new(), partitions=2, replace="generalized_moving_state")
    replacing = Replacing(scenario, new, "")
    replacing.asked = True
    query = scenario.run(join=new, look=replacing.look, epochs=2, replace="generalized_parallel_track")
    events = [event for progress in query.recentProgress for event in progress["events"]]
    assert [e["type"] for e in events if "replacement" in e][:2] == [
        "replacement-started",
        "replacement-live",
    ]
    # It goes on by itself, with the option or without it, and with the old definition as well.
    scenario.run(join=old, look=replacing.look, epochs=1)
    query = scenario.run(join=new, look=replacing.look, epochs=6, replace="generalized_hybrid")
    assert list(replacing.phases.values())[-1] == "ended"
    assert query.lastProgress["replacement"] is None
    replacing.check(old().query(), new().query(), scenario.runner.results())


def test_other_terms_that_are_given_meanwhile_hold_once_it_has_ended(scenario):
    """Whoever reads the rows encodes them for the new definition; what it keeps stays."""

    def old():
        return scenario.join(ONE_KEY, rows).within("9 seconds")

    def new():
        return old().on("a.id <> d.id")

    def on_other_terms():
        return replace(new(), _select=()).within("12 seconds").select("b.id", "a.id AS first")

    replacing = Replacing(scenario, new, "")
    replacing.asked = True
    scenario.run(join=old, epochs=4)
    scenario.run(join=new, look=replacing.look, epochs=1, replace="generalized_moving_state")
    # An option that is left in is no reason to refuse it, nor to replace it by itself.
    query = scenario.run(join=on_other_terms, look=replacing.look, epochs=5, replace="generalized_hybrid")
    assert list(dict.fromkeys(replacing.phases.values())) == ["live", "ended"]
    manifest = query._handler.manifest
    assert (manifest.replacements, manifest.definition["select"]) == (1, ["b.id AS b_id", "a.id AS first"])
    assert set(manifest.definition["within"].values()) == {"12 seconds"}
    ended = max(replacing.phases)
    files = sorted(scenario.runner.out.glob("*.parquet"))
    names = {tuple(pq.read_schema(path).names) for path in files}
    assert names == {tuple(new().schema.names), ("b_id", "first")}
    # The epochs after it have the results that they would have had on these terms.
    expected = Expected(
        new().within("12 seconds").query(), input_of_batches(scenario.feed, scenario.runner.checkpoint)
    )
    want = []
    for number in range(manifest.epoch + 1):
        asked = on_other_terms().query() if number > ended else new().query()
        expected.begin(number, AcceptRules(), replace(asked, kept=new().query().outputs))
        if number > ended:
            want.append(expected.tables["results"][number].select(["b_id", "a_id"]))
    got = [pq.read_table(path) for path in files if pq.read_schema(path).names == ["b_id", "first"]]
    assert_same_rows(pa.concat_tables(got).rename_columns(["b_id", "a_id"]), pa.concat_tables(want))
    # As ever, also with the option.
    query = scenario.run(join=on_other_terms, epochs=1, replace="generalized_hybrid")
    assert query.lastProgress["replacement"] is None


@pytest.mark.parametrize("source", [rows, columns])
def test_a_stream_is_added_at_a_start(scenario, source):
    def join(*names, on=()):
        frames = {name: source(scenario.feed.df(name)) for name in names}
        join = join_streams(scenario.spark, frames, lateness="5 seconds")
        return join.on("b.k = a.k", *on).within("15 seconds").select("a.id", "b.id")

    def old():
        return join("b", "a")

    def new():
        return (
            join("a", "c", "b", on=["a.k2 = c.k2"])
            if source is rows
            else join("a", "c", "b", on=["a.k = c.k"])
        )

    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=12, seed=3)
    early = [{name: epoch[name] for name in "ab"} for epoch in epochs[:5]]
    scenario.feed.add(*early)
    scenario.runner.run(old(), partitions=2)
    scenario.feed.add(*epochs[5:])
    replacing = Replacing(scenario, new, "")
    replacing.asked = True
    strategy = "generalized_parallel_track" if source is rows else "generalized_hybrid"

    query = scenario.run(join=new, look=replacing.look, epochs=0, replace=strategy)
    assert list(replacing.phases.values())[-1] == "ended"
    # Started again, it has all three, in the order in which Spark knows them.
    query = scenario.runner.run(new())
    assert query.lastProgress is None or query.lastProgress["replacement"] is None
    of_old = accept(old().query(), [{n: e[n] for n in "ab"} for e in epochs]).tables(old().query())
    of_new = accept(new().query(), [*early, *epochs[5:]]).tables(new().query())
    want = [
        results_between(old().query(), of_old, None, replacing.until),
        results_between(new().query(), of_new, replacing.until, None),
    ]
    assert min(table.num_rows for table in want) > 20
    assert_same_rows(scenario.runner.results(), pa.concat_tables(want))


def test_windows_of_aggregates_are_those_of_each_definition(scenario):
    def grouped(within):
        return _grouped(scenario.join().within(f"{within} seconds"), 10)

    replacing = Replacing(scenario, lambda: grouped(12), "generalized_hybrid")
    scenario.run(join=lambda: grouped(9), look=replacing.look, epochs=12)
    assert list(replacing.phases.values())[-1] == "ended"
    epochs = input_of_batches(scenario.feed, scenario.runner.checkpoint)
    old, new = grouped(9).query(), grouped(12).query()
    tables = accept(old, epochs).tables(old)
    got = scenario.runner.results()
    last = max(window["end"] for window in got.column("window").to_pylist())
    micros = pa.scalar(last, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    windows = [
        results_between(old, tables, None, replacing.until),
        results_between(new, tables, replacing.until, micros - old.aggregation.windows.length),
    ]
    assert min(table.num_rows for table in windows) > 3
    assert_same_windows(got, pa.concat_tables(windows), old)


def test_what_would_change_is_explained_in_the_output_mode_of_the_query(scenario, capsys):
    scenario.add(1)
    writer = _grouped(scenario.join(), 10).writeStream.outputMode("update").format("memory")
    query = writer.queryName("updated").option("checkpointLocation", scenario.runner.checkpoint).start()
    query.processAllAvailable()
    query.explain_replace(_grouped(scenario.join(), 5))
    text = capsys.readouterr().out
    query.stop()
    assert text.startswith("What changes:\n  windows of results: 10 seconds -> 5 seconds\n\nStored rows:")
    assert "efused" not in text


def _grouped(join, seconds):
    plain = replace(join, _select=())
    return plain.groupBy("b.k2 AS key", window(f"{seconds} seconds")).agg(
        "count(*) AS n", "median(d.v) AS middle"
    )
