"""Garbage collection in Spark's workers looks at what tasks have made, not at what modules are made of."""

import gc
import sys
import weakref

import pytest

from midstream.spark.messages import errors_as_messages
from midstream.spark.worker_python import use_this_python


@pytest.mark.spark
def test_a_worker_that_has_run_a_task_does_not_look_at_modules_again(spark):
    use_this_python(spark)

    def task(_numbers):
        class Garbage:
            itself: object

        kept = Garbage()
        kept.itself = kept
        garbage = weakref.ref(kept)
        del kept
        list(errors_as_messages("a step", iter([]), 0, None))
        looked_at = len(gc.get_objects())
        # If an earlier task of the worker has exempted the modules, garbage is left to Spark's collection.
        gc.collect()
        yield len(sys.modules), gc.get_freeze_count(), looked_at, garbage() is None

    modules, frozen, looked_at, gone = spark.sparkContext.parallelize([0], 1).mapPartitions(task).first()
    assert modules > 500
    assert frozen > 30_000
    # What earlier tasks of the worker keep is looked at; what modules are made of is not.
    assert looked_at < frozen / 10
    assert gone


def test_the_drivers_own_process_is_left_alone():
    before = gc.get_freeze_count()
    list(errors_as_messages("a step", iter([]), 0, None))
    assert gc.get_freeze_count() == before
