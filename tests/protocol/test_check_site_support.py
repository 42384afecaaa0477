"""What of a query cannot be combined with sites, and what must stay when it is started again."""

from dataclasses import replace

import pytest

from midstream.engine.link_traffic import LinkCounter, LinkTraffic
from midstream.errors import CheckpointError, OptionError
from midstream.inline import InlineJoin
from midstream.memory.balance import BalanceSettings
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.protocol.site_events import elsewhere_events
from midstream.query.site_description import SiteDescription
from tests.helpers import small_query

SITES = SiteDescription({"a": "x", "b": "y"}, partitions={"y": 2})
SETTINGS = Settings(None, 8)


def query_at(sites: SiteDescription):
    return small_query(["a.k = b.k"], topology=sites.topology("ab"))


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"memory": MemorySettings(1000)}, "stateMemory"),
        ({"balance": BalanceSettings(mode="lazy_disk")}, "balance"),
        ({"shares": (1, 1)}, "initialShares"),
        ({"single_partition": "forbid"}, "singlePartition 'forbid'"),
    ],
)
def test_settings_that_would_move_rows_are_refused_at_the_start_and_at_a_restart(setting, named):
    wrong = replace(SETTINGS, **setting)
    with pytest.raises(OptionError, match=f"must not use certain options; got {named}"):
        InlineJoin(query_at(SITES), settings=wrong)
    join = InlineJoin(query_at(SITES), settings=SETTINGS)
    join.run_epoch({})
    with pytest.raises(OptionError, match=f"must not use certain options; got {named}"):
        InlineJoin(query_at(SITES), settings=wrong, store=join.store)


def test_partitions_are_those_of_the_sites():
    join = InlineJoin(query_at(SITES), settings=replace(SETTINGS, partitions=7))
    assert join.partitions == 3
    with pytest.raises(OptionError, match="the number of partitions must be that of the sites"):
        join.rescale(4)
    with pytest.raises(OptionError, match="groups must be at least as many as partitions"):
        InlineJoin(query_at(SITES), settings=replace(SETTINGS, groups=1))


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (SiteDescription({"a": "x", "b": "z"}), r"sites.streams.b was 'y'; got 'z'"),
        (replace(SITES, sink="y"), r"sites.sink was 'x'; got 'y'"),
        (replace(SITES, partitions={"y": 3}), r"sites.partitions.y was 2; got 3"),
        (SiteDescription(), "sites was .*; got nothing"),
    ],
)
def test_sites_stay_when_a_query_is_started_again(other, problem):
    join = InlineJoin(query_at(SITES), settings=SETTINGS)
    join.run_epoch({})
    with pytest.raises(CheckpointError, match=problem):
        InlineJoin(query_at(other), settings=SETTINGS, store=join.store)


def test_links_may_change_when_a_query_is_started_again():
    join = InlineJoin(query_at(SITES), settings=SETTINGS)
    join.run_epoch({})
    again = InlineJoin(query_at(SITES.with_link((), "1 s", "1 kbit")), settings=SETTINGS, store=join.store)
    assert again.manifest.epoch == 0


def test_links_are_counted_in_one_direction_and_not_within_a_site():
    counter = LinkCounter("x")
    for target, size in (("y", 10), ("x", 1000), ("z", 5), ("y", 7)):
        counter.count(target, size, rows=2)
    assert counter.links == {"x->y": LinkTraffic(17, 2, 4), "x->z": LinkTraffic(5, 1, 2)}


def test_an_event_says_once_that_tasks_run_elsewhere():
    (event,) = elsewhere_events(4, {"x->y": 2}, {})
    assert (event.batch_id, event.severity) == (4, "warning")
    assert event.message.startswith("tasks of site x ran at y, 2 in this epoch: ")
    assert list(elsewhere_events(5, {"x->y": 1}, {"x->y": 2})) == []
    assert [e.batch_id for e in elsewhere_events(6, {"x->y": 1, "x->no site": 1}, {"x->y": 2})] == [6]
