"""Streams that leave a query on Spark, and come back: exact, over restarts and crashes, at every position."""

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.errors import MidstreamError
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.settings import Settings
from midstream.runtime.crash_points import crash_hook
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.source_order import check_can_add, check_can_remove, fit_checkpoint, in_order
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, accept, assert_same_rows, generate
from tests.helpers import small_query
from tests.replace.replacement_run import results_between
from tests.spark.driver_death import DriverDiesError
from tests.spark.migration_scenario import columns, rows
from tests.spark.runner import join_streams

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("time_for_one_epoch_in_the_background")]

ASKED = 3
"""In which epoch of a run another definition is asked for, or one later if Spark is quick."""
SHAPE = Shape(rows=20, late=0.05, null_keys=0.05, null_times=0.02, duplicates=0.05, keys=8)


ONCE_ENDED = "in the step after the one that ends a replacement"


class Leaving:
    """A query of streams that come and go, and what each source has brought in each batch."""

    def __init__(self, feed, runner, source) -> None:
        self.feed, self.runner, self.source = feed, runner, source
        self.batches: list[dict[int, pa.Table]] = []
        self.read: dict[int, int] = {}
        self.until: list[int | None] = []
        """The hand-over times of the replacements that have ended."""
        self.refused: list[str] = []

    def join(self, names):
        frames = {name: self.source(self.feed.df(name)) for name in names}
        join = join_streams(self.feed.spark, frames, lateness="5 seconds")
        on = [f"{names[0]}.k = {other}.k" for other in names[1:]]
        return join.on(*on).within("15 seconds").select("a.id", "b.id")

    def run(self, names, *, sources: Sequence[str], becomes="", epochs=0, dies_at="", **options):
        """Run over so many more epochs; ``sources`` says what Spark reads, and may get a definition."""
        given = len(self.feed.epochs)
        shapes = dict.fromkeys("abcd", SHAPE)
        self.feed.add(*generate(shapes, epochs=given + epochs, seed=5)[given:])
        steps: list[str] = []
        started: list[JoinStreamingQuery] = []

        def happen(point):
            if point == dies_at or (dies_at == ONCE_ENDED and point == "before the step" and self.until):
                raise DriverDiesError
            if not started:
                return
            steps.append(point)
            manifest = started[0]._handler.manifest
            if becomes and point == "before the step" and steps.count(point) == ASKED:
                started[0].replace(self.join(becomes))
            if point == "after forgetting a manifest" and manifest.ended_replacement is not None:
                self.until.append(manifest.ended_replacement.until)
                if becomes:
                    self.come_back(started[0], names)

        with crash_hook(happen):
            query = self.runner.start(self.join(names), **options)
            started.append(query)
            if dies_at:
                with pytest.raises(Exception, match="DriverDiesError"):
                    query.awaitTermination()
            else:
                query.awaitTermination()
        self._note(sources)
        assert fsck(LocalStore(str(self.runner.checkpoint))).problems == ()
        return query

    def come_back(self, query, names):
        """What has left a running query cannot come back to it, though Spark still reads it."""
        try:
            query.replace(self.join(names))
        except MidstreamError as error:
            self.refused.append(str(error))

    def _note(self, sources):
        """What Spark's offsets say of the batches of a run, before another one writes them anew."""
        folder = self.runner.checkpoint / "spark" / "offsets"
        numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        for number in numbers[len(self.batches) :]:
            _, _, *offsets = (folder / str(number)).read_text().splitlines()
            batch = {}
            for place, (name, offset) in enumerate(zip(sources, offsets, strict=True)):
                before = self.read.get(place, 0)
                upto = before if offset == "-" else json.loads(offset)["logOffset"] + 1
                parts = [self.feed.epochs[n][name] for n in range(before, upto)]
                batch[place] = pa.concat_tables([self.feed.epochs[0]["a"].slice(0, 0), *parts])
                self.read[place] = upto
            self.batches.append(batch)

    def last_offsets(self):
        """The offsets of the last batch, by the positions of sources."""
        path = self.runner.checkpoint / "spark" / "offsets" / str(len(self.batches) - 1)
        return path.read_text().splitlines()[2:]

    def results_of(self, places: Mapping[str, int], after, until):
        """What a definition has between two hand-over times, of what its sources have brought."""
        query = self.join(tuple(places)).query()
        nothing = self.feed.epochs[0]["a"].slice(0, 0)
        epochs = [{name: batch.get(at, nothing) for name, at in places.items()} for batch in self.batches]
        return results_between(query, accept(query, epochs).tables(query), after, until)


@pytest.mark.parametrize("source", [columns, rows])
def test_streams_leave_one_after_the_other_and_come_back(feed, runner, source):
    leaving = Leaving(feed, runner, source)

    leaving.run("acbd", sources="acbd", epochs=1)
    with pytest.raises(MidstreamError, match=r"left out while the query runs.*; got no stream c"):
        runner.start(leaving.join("abd"), replace="generalized_hybrid")
    leaving.run("acbd", becomes="abd", epochs=4, sources="acbd")
    assert leaving.until == []
    with pytest.raises(MidstreamError, match="must be started with all streams of a replacement"):
        runner.start(leaving.join("abd"))
    # The old definition ends what was begun; then Spark still reads the stream, and nobody takes its rows.
    query = leaving.run("acbd", epochs=9, sources="acbd", dies_at=ONCE_ENDED)
    assert '"logOffset"' in leaving.last_offsets()[1]
    assert len(leaving.until) == 1
    assert set(query.lastProgress["sources"]) == set("abd")
    with pytest.raises(MidstreamError, match="the streams were a, b, d"):
        runner.start(leaving.join("acbd"))

    # That batch runs again without the stream, also if it is not done this time either.
    leaving.run("abd", epochs=2, sources="a-bd", dies_at="before the step")
    assert leaving.last_offsets()[1] == "-"
    query = leaving.run("abd", sources="a-bd", becomes="ab", epochs=8)
    assert len(leaving.until) == 2
    assert "streams that the query reads; got stream d" in leaving.refused[-1]
    query = leaving.run("ab", sources="a-b-", epochs=2)
    told = {**query.lastProgress, "text": query.explanation()}
    folders = {name: [read["description"] for read in told["sources"][name]["offsets"]] for name in "ab"}
    assert folders == {name: [f"FileStreamSource[file:{feed.root}/{name}]"] for name in "ab"}
    assert [set(told[part]) for part in ("sources", "watermark")] == [set("ab"), set("ab")]
    assert not {"{c}", "{d}", "{c", "d}"} & set(told["text"].replace(",", " ").split())

    # What comes back is read from its beginning, whatever was read of it before.
    leaving.run("abc", sources="a-b-c", epochs=6, replace="generalized_hybrid", dies_at="before the step")
    leaving.run("abc", sources="a-b-c", epochs=2)
    assert len(leaving.until) == 3
    query = leaving.run("abc", sources="a-b-c", epochs=2)
    assert set(query.lastProgress["sources"]) == set("abc")

    first, second, third = leaving.until
    want = [
        leaving.results_of({"a": 0, "c": 1, "b": 2, "d": 3}, None, first),
        leaving.results_of({"a": 0, "b": 2, "d": 3}, first, second),
        leaving.results_of({"a": 0, "b": 2}, second, third),
        leaving.results_of({"a": 0, "b": 2, "c": 4}, third, None),
    ]
    assert min(table.num_rows for table in want) > 20
    assert_same_rows(runner.results(), pa.concat_tables(want))


class DyingStore:
    """A store whose process dies after so many operations that change it."""

    def __init__(self, store, survives) -> None:
        self._store, self._left = store, survives

    def __getattr__(self, name):
        operation = getattr(self._store, name)

        def run(*arguments):
            if name in ("put", "delete"):
                if not self._left:
                    raise DriverDiesError
                self._left -= 1
            return operation(*arguments)

        return run


def test_a_checkpoint_is_fitted_again_wherever_a_driver_died(spark, tmp_path):
    """Other sources keep their offsets and their folders, also those that are in several places."""

    def frame(name):
        (tmp_path / name).mkdir(exist_ok=True)
        return spark.readStream.schema("id long").parquet(str(tmp_path / name))

    shared = frame("shared")
    frames = {"a": shared, "b": frame("x").union(frame("y")), "c": shared, "d": frame("z"), "new": frame("n")}
    settings, query = Settings(partitions=1, groups=1), small_query(["a.k = b.k"])
    manifest = Coordinator(query, settings).initial_manifest("id", settings.first_plan(query))
    manifest = replace(manifest, sources=("a", "", "b", "c", "", "d"))
    ordered = in_order(manifest, frames)
    assert [name for name in ordered if name in frames] == ["a", "b", "c", "d", "new"]
    header = "v1\n{}\n"
    before = ['{"of": "a"}', "left", "x", "y", '{"of": "a"}', "left too", "d"]

    def checkpoint():
        store = MemoryStore()
        for number in (3, 4):
            store.put(f"spark/offsets/{number}", (header + "\n".join(before)).encode())
            store.put(f"spark/offsets/.{number}.crc", b"sum")
        for folder in range(6):
            store.put(f"spark/sources/{folder}/0", b"files")
        return store

    def content(store):
        return {name: data.to_pybytes().decode() for name, data in store.files.items()}

    whole = checkpoint()
    fit_checkpoint(whole, ordered, frames)
    offsets = header + "\n".join(['{"of": "a"}', "-", "x", "y", '{"of": "a"}', "-", "d", "-"])
    # a and c are read once, so the second one that has left has the fifth folder.
    kept = {f"spark/sources/{n}/0": "files" for n in (0, 2, 3, 5)}
    assert content(whole) == {"spark/offsets/3": offsets, "spark/offsets/4": offsets, **kept}

    for survives in range(20):
        store = checkpoint()
        try:
            fit_checkpoint(DyingStore(store, survives), ordered, frames)
        except DriverDiesError:
            fit_checkpoint(store, ordered, frames)
        else:
            assert survives == 6
            break
        assert content(store) == content(whole)
    fit_checkpoint(DyingStore(whole, 0), ordered, frames)

    whole.put("spark/offsets/5", b"v2\n{}\n{}")
    with pytest.raises(MidstreamError, match="knows sources by their position; got offsets of version v2"):
        fit_checkpoint(whole, ordered, frames)
    with pytest.raises(MidstreamError, match="checkpoint has: a, b, c, d; got no stream b"):
        in_order(manifest, {"a": shared})
    for name, text in (("b", "reads 2 sources"), ("c", "another stream has, too")):
        with pytest.raises(MidstreamError, match=text):
            check_can_remove(name, frames)
    check_can_remove("d", frames)


def test_a_stream_that_is_added_has_a_source_of_its_own(spark):
    """Of one that is read already, its rows of before would be missing."""

    def frame():
        return spark.readStream.format("rate").load()

    settings, query = Settings(partitions=1, groups=1), small_query(["a.k = b.k"])
    manifest = Coordinator(query, settings).initial_manifest("id", settings.first_plan(query))
    shared, added = frame(), frame()
    frames = {"a": shared, "b": shared}
    check_can_add(manifest, {**frames, "c": added, "d": added})
    with pytest.raises(MidstreamError, match="got stream 'd', which has that of stream 'a'"):
        check_can_add(manifest, {**frames, "c": added, "d": frame().union(shared)})
    # What has left is read no more.
    check_can_add(replace(manifest, sources=("", "b")), {"b": frame(), "a": shared})
