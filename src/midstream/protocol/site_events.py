"""Events about sites: tasks that run elsewhere than the streams that they join live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from midstream.engine.link_traffic import LinkName, sites_of_link
from midstream.protocol.event import Event, Severity, counted


class TaskElsewhere(Event, frozen=True, kw_only=True, tag="task-elsewhere"):
    """Spark has run tasks of a site at another one. Results are the same, what goes over links is not."""

    severity: ClassVar[Severity] = "warning"
    template: ClassVar[str] = (
        "of site {site}, {counted} ran at {elsewhere}: the links between them carry more than progress says; "
        "see that the site has an executor with a free core, and that spark.locality.wait is longer than a "
        "stage takes"
    )

    site: str
    elsewhere: str
    """The site where they ran; ``no site`` if their worker does not say."""
    tasks: int

    @property
    def message(self) -> str:
        """The event as a text for people."""
        number = counted(self.tasks, "task")
        return self.template.format(counted=number, site=self.site, elsewhere=self.elsewhere)


def elsewhere_events(
    epoch: int, elsewhere: Mapping[LinkName, int], before: Mapping[LinkName, int]
) -> Iterator[Event]:
    """An event for each pair of sites for which there was none in the epoch before."""
    for name, tasks in sorted(elsewhere.items()):
        if name not in before:
            site, other = sites_of_link(name)
            yield TaskElsewhere(batch_id=epoch, site=site, elsewhere=other, tasks=tasks)
