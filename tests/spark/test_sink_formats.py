"""The table of sinks: each checks what it needs before anything is started."""

import pytest

from midstream.errors import OptionError
from midstream.spark.options import QueryOptions
from midstream.spark.sink_formats import FORMATS, SinkFormat, foreach_batch

IN_CHECKPOINT = [FORMATS["memory"], FORMATS["console"], foreach_batch(lambda rows, epoch: None)]
REMOTE = QueryOptions(checkpoint_location="s3://bucket/x")


def test_the_names_of_formats_are_those_of_their_sinks():
    assert {name: sink.name for name, sink in FORMATS.items()} == {
        name: name for name in ("parquet", "memory", "console")
    }


def test_parquet_needs_a_path_and_a_checkpoint_which_may_be_remote():
    check = FORMATS["parquet"].check
    with pytest.raises(OptionError, match="the parquet sink must have a path"):
        check(REMOTE, None)
    with pytest.raises(OptionError, match="the parquet sink must have a checkpointLocation"):
        check(QueryOptions(path="/out"), None)
    check(QueryOptions(path="/out", checkpoint_location="s3://bucket/x"), None)
    check(QueryOptions(path="/out", checkpoint_location="/checkpoint"), None)


@pytest.mark.parametrize("sink", IN_CHECKPOINT, ids=lambda sink: sink.name)
def test_results_that_pass_through_the_checkpoint_need_a_folder(sink: SinkFormat):
    with pytest.raises(OptionError, match=f"with the {sink.name} sink must be a folder; got s3://bucket/x"):
        sink.check(REMOTE, "results")
    sink.check(QueryOptions(), "results")
    sink.check(QueryOptions(checkpoint_location="/checkpoint"), "results")


@pytest.mark.parametrize("name", [None, "", "two words", "1st", "a;b", "a\n"])
def test_memory_needs_a_name_that_a_view_can_have(name: str | None):
    with pytest.raises(OptionError, match="the memory sink must have a name that a view can have"):
        FORMATS["memory"].check(QueryOptions(), name)
