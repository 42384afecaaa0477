"""Every engine partition is run by one task, and there are no more tasks than keep the cores busy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.references import MAX_PARTITIONS
from midstream.spark.task_ranges import TaskRanges

COUNTS = st.integers(1, MAX_PARTITIONS)


@given(COUNTS, COUNTS)
def test_tasks_share_all_partitions_evenly(partitions, cores):
    ranges = TaskRanges.for_cores(partitions, cores)
    shares = [ranges.partitions_of(task) for task in range(ranges.tasks)]
    assert [partition for share in shares for partition in share] == list(range(partitions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(ranges.task_of(partition) == task for task, share in enumerate(shares) for partition in share)


@pytest.mark.parametrize(
    ("partitions", "cores", "tasks"),
    [(1, 8, 1), (2, 2, 2), (8, 2, 8), (9, 2, 8), (512, 2, 8), (512, 400, 512)],
)
def test_tasks_follow_the_cores_and_never_exceed_the_partitions(partitions, cores, tasks):
    assert TaskRanges.for_cores(partitions, cores).tasks == tasks
