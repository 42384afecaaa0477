"""Which engine partitions each Spark task of a stage runs.

The number of engine partitions is that of the pieces that state is in, which changes of the cluster must not
touch. The number of tasks is what Spark has to start, feed and wait for in every stage of every epoch. So a
task runs several partitions, one after the other, if there are more of them than keep all cores busy.

If streams live at sites, each partition has a task of its own, at its site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from midstream.engine.places import Places
from midstream.query.network import Site

SiteHosts = Mapping[Site, Sequence[str]]
"""The hosts at each site."""

# With a few tasks for each core, one that has more to do than others does not leave the other cores idle for
# long; and those that run at a time receive only a part of an epoch's rows.
_TASKS_PER_CORE = 4


@dataclass(frozen=True)
class TaskRanges:
    """Ranges of neighbouring engine partitions, of about the same length, one for each task."""

    partitions: int
    tasks: int
    sites: tuple[Site, ...] = ()
    """Where each task runs; empty if streams live at no sites."""
    hosts: SiteHosts = field(default_factory=dict, compare=False)
    """The hosts at each site; empty if no worker of the cluster has the name of one."""

    @classmethod
    def for_cores(cls, partitions: int, cores: int) -> TaskRanges:
        """As many tasks as a number of cores runs well, but no more than there are partitions."""
        return cls(partitions, min(partitions, _TASKS_PER_CORE * cores))

    @classmethod
    def for_places(cls, places: Places, cores: int, hosts: SiteHosts) -> TaskRanges:
        """The same, or if streams live at sites, a task for each partition."""
        if not places.partitions_at:
            return cls.for_cores(places.partitions, cores)
        sites = tuple(places.site_of[partition] for partition in range(places.partitions))
        return cls(places.partitions, places.partitions, sites, hosts)

    def task_of(self, partition: int) -> int:
        """The task that runs a partition."""
        return partition * self.tasks // self.partitions

    def partitions_of(self, task: int) -> range:
        """The partitions that a task runs."""
        return range(-(-task * self.partitions // self.tasks), -(-(task + 1) * self.partitions // self.tasks))

    def site_of(self, task: int) -> Site | None:
        """Where a task runs, if streams live at sites."""
        return self.sites[task] if self.sites else None
