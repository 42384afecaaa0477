"""Events about sites: tasks that run elsewhere than the streams that they join live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from midstream.engine.link_traffic import LinkName, sites_of_link
from midstream.protocol.event import Event, Severity


class TaskElsewhere(Event, frozen=True, kw_only=True, tag="task-elsewhere"):
    """Spark has run tasks of a site at another one. Results are the same, what goes over links is not."""

    severity: ClassVar[Severity] = "warning"
    template: ClassVar[str] = (
        "tasks of site {site} ran at {elsewhere}, {tasks:,} in this epoch: more goes over the links than "
        "progress reports; see that the site has an executor with a free core, and that spark.locality.wait "
        "is longer than a stage takes"
    )

    site: str
    elsewhere: str
    """The site where they ran; ``no site`` if their worker does not say."""
    tasks: int


def elsewhere_events(
    epoch: int, elsewhere: Mapping[LinkName, int], before: Mapping[LinkName, int]
) -> Iterator[Event]:
    """An event for each pair of sites for which there was none in the epoch before."""
    for name, tasks in sorted(elsewhere.items()):
        if name not in before:
            site, other = sites_of_link(name)
            yield TaskElsewhere(batch_id=epoch, site=site, elsewhere=other, tasks=tasks)
