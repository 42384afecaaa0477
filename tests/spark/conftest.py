"""Fixtures: streams from files, one file per epoch, and runs of joins over them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midstream.spark.background_budget import BackgroundBudget
from tests.spark.feed import Feed
from tests.spark.migration_scenario import MigrationScenario
from tests.spark.runner import Runner
from tests.spark.site_cluster import SiteCluster, start_site_cluster
from tests.spark.site_network import NoNetworkError


@pytest.fixture
def feed(spark, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "in")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.fixture
def scenario(spark, feed: Feed, runner: Runner) -> MigrationScenario:
    """A query of four streams whose plan is changed while it runs."""
    return MigrationScenario(spark, feed, runner)


@pytest.fixture
def time_for_one_epoch_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches leave as much time in the background, however busy the machine is."""
    monkeypatch.setattr(BackgroundBudget, "next", lambda _: 1)


@pytest.fixture(scope="session")
def site_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteCluster]:
    """A cluster with a worker at each of three sites, between which links have 50 Mbit/s."""
    folder = tmp_path_factory.mktemp("cluster")
    try:
        with start_site_cluster(folder, ["frankfurt", "oregon", "paris"], "50mbit") as cluster:
            yield cluster
    except NoNetworkError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def driver_at_sites(site_cluster: SiteCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a driver in that cluster has seen: of queries, and of tasks."""
    return site_cluster.drive(tmp_path_factory.mktemp("driver"))
