"""Where tasks run on a cluster whose workers are at different sites, and what goes over the links for it."""

from collections import Counter

import pytest

from midstream.spark.site_tasks import SITE_VARIABLE, find_site_hosts, ran_elsewhere, running_site
from tests.spark.tasks_at_sites import SENT


@pytest.fixture(scope="module")
def driven(driver_at_sites):
    """What the driver has seen."""
    return driver_at_sites["tasks"]


def test_a_task_knows_its_site_if_its_worker_does(monkeypatch):
    monkeypatch.setenv(SITE_VARIABLE, "paris")
    assert running_site() == "paris"
    for nothing in (lambda: monkeypatch.setenv(SITE_VARIABLE, ""), lambda: monkeypatch.delenv(SITE_VARIABLE)):
        nothing()
        assert running_site() is None


@pytest.mark.spark
def test_there_are_no_sites_where_the_driver_runs_the_tasks(spark):
    assert find_site_hosts(spark.sparkContext) == {}


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)
class TestAtSites:
    def test_the_driver_finds_the_hosts_of_each_site(self, driven, site_cluster):
        sites = ["frankfurt", "oregon", "paris"]
        assert driven["hosts"] == {site: [site_cluster.network.address(site)] for site in sites}

    def test_tasks_run_at_their_sites_before_and_after_shuffles(self, driven):
        assert driven["held"] == driven["wanted"]
        assert Counter(driven["wanted"][0]) == {"frankfurt": 4, "oregon": 4, "paris": 4}

    def test_without_preferences_they_do_not(self, driven):
        assert all(free != wanted for free, wanted in zip(driven["free"], driven["wanted"], strict=True))

    def test_a_task_notices_that_its_site_has_no_executor(self, driven):
        ((site,),) = driven["unknown"]
        assert site in driven["hosts"]

    def test_a_task_notices_that_its_site_was_busy_for_too_long(self, driven):
        assert set(driven["impatient"][0]) > {"frankfurt"}

    def test_bytes_that_are_sent_are_counted_at_the_interfaces(self, driven):
        assert driven["received"] == driven["sent"]
        for link, size in driven["sent"].items():
            assert size < driven["measured"][link] < 1.2 * size
        # Acknowledgements go back, and the code of tasks comes from wherever it is already.
        sites = {f"{one}->{other}" for one in driven["hosts"] for other in driven["hosts"] if one != other}
        idle = sites - driven["sent"].keys()
        assert all(driven["measured"][link] < 0.05 * SENT for link in idle)
        assert all(driven["measured"][link] < 0.05 * SENT for link in driven["measured"].keys() - sites)

    def test_links_are_as_slow_as_they_should_be(self, driven):
        assert driven["seconds"] > 0.9 * 8 * SENT / 50e6


def test_a_task_says_that_it_runs_elsewhere_only_where_workers_have_names_of_sites(monkeypatch):
    hosts = {"paris": ["10.0.0.1"]}
    monkeypatch.setenv(SITE_VARIABLE, "oregon")
    assert ran_elsewhere("paris", hosts) == {"paris->oregon": 1}
    assert ran_elsewhere("oregon", hosts) == ran_elsewhere(None, hosts) == ran_elsewhere("paris", {}) == {}
    monkeypatch.delenv(SITE_VARIABLE)
    assert ran_elsewhere("paris", hosts) == {"paris->no site": 1}
