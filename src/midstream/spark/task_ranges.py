"""Which engine partitions each Spark task of a stage runs.

The number of engine partitions is that of the pieces that state is in, which changes of the cluster must not
touch. The number of tasks is what Spark has to start, feed and wait for in every stage of every epoch. So a
task runs several partitions, one after the other, if there are more of them than keep all cores busy.
"""

from __future__ import annotations

from dataclasses import dataclass

# With a few tasks for each core, one that has more to do than others does not leave the other cores idle for
# long; and those that run at a time receive only a part of an epoch's rows.
_TASKS_PER_CORE = 4


@dataclass(frozen=True)
class TaskRanges:
    """Ranges of neighbouring engine partitions, of about the same length, one for each task."""

    partitions: int
    tasks: int

    @classmethod
    def for_cores(cls, partitions: int, cores: int) -> TaskRanges:
        """As many tasks as a number of cores runs well, but no more than there are partitions."""
        return cls(partitions, min(partitions, _TASKS_PER_CORE * cores))

    def task_of(self, partition: int) -> int:
        """The task that runs a partition."""
        return partition * self.tasks // self.partitions

    def partitions_of(self, task: int) -> range:
        """The partitions that a task runs."""
        return range(-(-task * self.partitions // self.tasks), -(-(task + 1) * self.partitions // self.tasks))
