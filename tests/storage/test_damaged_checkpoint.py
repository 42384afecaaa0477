"""A checkpoint that is damaged or of another query: told in words that a user knows."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.errors import CheckpointError, MidstreamError
from midstream.inline import InlineJoin
from midstream.query.build import build_query
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore
from tests.helpers import COLUMNS, make_stream, small_query
from tests.plain_errors import assert_plain
from tests.small_case import EPOCHS, OTHER_PLAN, QUERY, SETTINGS


def _resume(checkpoint: Path, query=QUERY, settings=SETTINGS) -> None:
    """Continue, and open every slice."""
    InlineJoin(query, settings=settings, store=LocalStore(str(checkpoint))).run_epoch(EPOCHS[3])


NESTED = {**COLUMNS, "s": pa.struct([("k", pa.int32())])}
OTHER_QUERIES = {
    "fewer streams": small_query(["a.k = b.k"]),
    "other columns": small_query(["a.k = b.k", "b.k = c.k"], "abc"),
    "other settings": QUERY,
}


@pytest.mark.parametrize("name", OTHER_QUERIES)
def test_another_query_than_that_of_the_checkpoint_is_refused_in_plain_words(checkpoint, name):
    settings = SETTINGS if name != "other settings" else replace(SETTINGS, groups=SETTINGS.groups + 1)
    with pytest.raises(MidstreamError) as raised:
        _resume(checkpoint, OTHER_QUERIES[name], settings)
    assert_plain(raised.value)


def test_a_nested_column_of_another_type_is_shown_in_the_words_of_spark():
    store = MemoryStore()
    query = build_query([make_stream(n) for n in "ab"], ["a.i = b.i"], select=["a.s"])
    join = InlineJoin(query, store=store)
    join.run_epoch({})
    other = build_query([make_stream(n, NESTED) for n in "ab"], ["a.i = b.i"], select=["a.s"])
    with pytest.raises(CheckpointError) as raised:
        InlineJoin(other, store=store)
    assert_plain(raised.value)
    assert raised.value.must.endswith("streams.a.columns.s was 'struct<k:bigint,Deep:struct<er:string>>'")
    assert raised.value.got == "'struct<k:int>'"


DAMAGE = {
    "empty": b"",
    "no JSON": b"x" * 50,
    "no text": b"\xff\xfe" * 50,
    "other JSON": b"[]",
    "no digest": b'{"a": 1}',
    "another digest": b'{"sha256":"0","manifest":{},"intent":{},"publication":{}}',
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("folder", ["manifests", "leases", "intents", "published", "requests", "slices"])
def test_damaged_files_are_noticed_and_told_of_in_plain_words(checkpoint, folder, damage):
    InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(checkpoint))).migrate(OTHER_PLAN)
    files = [path for path in (checkpoint / folder).iterdir() if path.suffix not in (".beat", ".released")]
    if folder == "intents":
        files.append(checkpoint / folder / f"{3:012d}.json")
    for path in files:
        path.write_bytes(DAMAGE[damage])
    try:
        if folder == "leases":
            seize_lease(LocalStore(str(checkpoint)), "test", wait=True)
        _resume(checkpoint)
    except MidstreamError as error:
        assert_plain(error)
    else:
        # An empty note says that all is published; the others are read only if publishing was cut off.
        assert folder == "published", "nobody has noticed"
    for problem in fsck(LocalStore(str(checkpoint))).problems:
        assert problem.what
        assert "Error" not in problem.what
