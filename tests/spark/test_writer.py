"""What the writer of a query takes, whichever way Spark lets it be written."""

from functools import partial

import pytest

from tests.spark.without_spark import new_join, new_writer


class _Saver:
    def save(self, batch: object, batch_id: int, mode: str = "append") -> None: ...

    def __call__(self, batch: object, batch_id: int) -> None: ...


@pytest.mark.parametrize(
    "function", [print, _Saver().save, _Saver(), lambda *batch: None, partial(print, "x"), min]
)
def test_functions_that_take_a_batch_and_its_id_are_taken(function):
    assert repr(new_writer().foreachBatch(function)) == "<JoinStreamWriter a, b to foreachBatch>"


def test_what_spark_takes_in_any_case_is_taken_in_any_case():
    writer = new_writer().outputMode("Append").format("PARQUET")
    assert repr(writer) == "<JoinStreamWriter a, b to parquet>"
    assert repr(new_writer()) == "<JoinStreamWriter a, b to no sink yet>"
    join = new_join()
    assert join.on("a.x = b.y", "INNER") == join.on("a.x = b.y", how="inner") == join.on("a.x = b.y")
    assert join.select(["a.x", "b.y"], "a.z") == join.select("a.x", "b.y", "a.z")
