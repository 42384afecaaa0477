"""Tables in folders by the values of columns: which rows are in which folder, and exactly once."""

import datetime
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from midstream.errors import CheckpointError, StreamError
from midstream.storage.output_table import STAGED, FragmentRunId, OutputTable, ParquetWriter
from midstream.storage.partition_folders import by_folder, is_folder

TASK = FragmentRunId(epoch=3, partition=1, fragment=0)
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "day": [datetime.date(2026, 3, 1), datetime.date(2026, 3, 2), None, datetime.date(2026, 3, 1), None],
        "item": ["tea", "a/b=c", "tea", "tea", ""],
    }
)


def _writer(path: Path, *columns: str) -> ParquetWriter:
    table = OutputTable(table="results", path=str(path), query="q").identified()
    return ParquetWriter(table, None, ROWS.schema, {}, columns)


def _files(path: Path) -> dict[str, list[int]]:
    files = sorted(path.rglob("*.parquet"))
    tables = {str(file.relative_to(path)): pq.ParquetFile(file).read() for file in files}
    return {name: table["id"].to_pylist() for name, table in tables.items()}


def test_each_folder_has_the_rows_of_its_values_in_their_order(tmp_path):
    writer = _writer(tmp_path, "day", "item")
    writer.results_table.publish(writer.results(TASK, ROWS))
    name = f"part-{TASK}-q.parquet"
    assert _files(tmp_path) == {
        f"day=2026-03-01/item=tea/{name}": [1, 4],
        f"day=2026-03-02/item=a%2Fb%3Dc/{name}": [2],
        f"day=__HIVE_DEFAULT_PARTITION__/item=__HIVE_DEFAULT_PARTITION__/{name}": [5],
        f"day=__HIVE_DEFAULT_PARTITION__/item=tea/{name}": [3],
    }
    file = next(tmp_path.rglob("day=*/*/*.parquet"))
    assert pq.read_schema(file).names == ["id"]


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=60)), st.one_of(st.none(), st.booleans()))))
def test_no_row_is_lost_or_doubled_whatever_the_values(values):
    columns = list(zip(*values, strict=True)) or [(), ()]
    rows = pa.table(
        {
            "id": list(range(len(values))),
            "k": pa.array(columns[0], pa.string()),
            "b": pa.array(columns[1], pa.bool_()),
        }
    )
    folders = dict(by_folder(rows, ["k", "b"]))
    assert all(is_folder(part) for folder in folders for part in folder.split("/"))
    assert sorted(i for part in folders.values() for i in part["id"].to_pylist()) == list(range(len(values)))
    for part in folders.values():
        of_folder = {(values[i][0] or None, values[i][1]) for i in part["id"].to_pylist()}
        assert len(of_folder) <= 1


def test_a_query_without_results_leaves_its_columns_behind(tmp_path):
    writer = _writer(tmp_path, "day")
    (output,) = writer.results(FragmentRunId(epoch=0, partition=0, fragment=0), None)
    writer.results_table.publish([output])
    assert output.published.startswith("day=__HIVE_DEFAULT_PARTITION__/part-")
    assert _files(tmp_path) == {output.published: []}


def test_publishing_may_be_repeated_and_readers_may_take_files_and_folders_away(tmp_path):
    writer = _writer(tmp_path, "item")
    outputs = writer.results(TASK, ROWS)
    table = writer.results_table
    table.publish(outputs[:1])
    shutil.rmtree(tmp_path / "item=tea")
    table.publish(outputs)
    assert not (tmp_path / "item=tea").exists()
    assert sorted(i for ids in _files(tmp_path).values() for i in ids) == [2, 5]
    assert [path.name for path in (tmp_path / STAGED).iterdir()] == ["folder-id"]


def test_a_folder_that_a_reader_removes_at_the_wrong_moment_costs_no_file(tmp_path, monkeypatch):
    writer = _writer(tmp_path, "item")
    outputs = writer.results(TASK, ROWS)
    removed: list[Path] = []
    replace_file = Path.replace

    def remove_first(self, target):
        if not removed:
            removed.append(Path(target).parent)
            Path(target).parent.rmdir()
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", remove_first)
    writer.results_table.publish(outputs)
    assert removed
    assert sorted(i for ids in _files(tmp_path).values() for i in ids) == [1, 2, 3, 4, 5]


def test_a_name_that_no_folder_can_have_is_found_before_the_commit(tmp_path):
    rows = ROWS.set_column(2, "item", pa.array(["é" * 130] * 5))
    with pytest.raises(StreamError, match=r"folder of item must have at most 255 bytes; got 265"):
        _writer(tmp_path, "item").results(TASK, rows)


@pytest.mark.parametrize("name", ["../x", "item=a/../../x", "plain/x", "item=/x", "item=a//x", "/item=a/x"])
def test_no_name_in_a_manifest_leads_out(tmp_path, name):
    writer = _writer(tmp_path, "item")
    output = replace(writer.results(TASK, ROWS)[0], published=name)
    with pytest.raises(CheckpointError, match="must be a word, in folders of the values"):
        writer.results_table.publish([output])
