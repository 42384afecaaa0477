"""A query goes on with the definition of its checkpoint, in whichever words that is written."""

import json

from msgspec import structs

from midstream.inline import InlineJoin
from midstream.protocol.settings import check_same_definition
from midstream.query.build import build_query
from midstream.storage.memory_store import MemoryStore
from tests.helpers import COLUMNS, make_stream


def test_a_checkpoint_whose_nested_types_are_written_in_the_words_of_arrow_still_opens():
    store = MemoryStore()
    query = build_query([make_stream(n) for n in "ab"], ["a.i = b.i"], select=["a.s", "a.arr"])
    join = InlineJoin(query, store=store)
    definition = {**join.manifest.definition}
    earlier = json.loads(
        json.dumps(definition)
        .replace("struct<k:bigint,Deep:struct<er:string>>", str(COLUMNS["s"]))
        .replace("array<bigint>", str(COLUMNS["arr"]))
    )
    assert earlier != definition
    check_same_definition(
        structs.replace(join.manifest, definition=earlier), query, join.coordinator.settings
    )
