"""Fixtures: streams from files, one file per epoch, and runs of joins over them."""

from pathlib import Path

import pytest

from tests.spark.feed import Feed
from tests.spark.migration_scenario import MigrationScenario
from tests.spark.runner import Runner


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
