"""A query whose streams live at sites, on a cluster with a worker at each and slow links between them."""

import pytest

from tests.spark.sited_queries import RUNS

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def driven(driver_at_sites):
    """What the driver has seen; it has checked that results are those of the oracle."""
    return driver_at_sites["queries"]


def test_results_are_exact_and_tasks_are_at_their_sites(driven):
    # That results are those of the oracle, the driver has checked.
    assert len({driven[name]["results"] for name in RUNS}) == 1
    assert driven["fixed"]["results"] > 50
    for name in RUNS:
        assert "task-elsewhere" not in {event["type"] for event in driven[name]["events"]}


def test_tasks_of_a_site_without_executors_run_elsewhere_and_say_so(driven):
    run = driven["atlantis"]
    elsewhere = [event for event in run["events"] if event["type"] == "task-elsewhere"]
    assert elsewhere
    assert {event["site"] for event in elsewhere} == {"atlantis"}
    assert {event["elsewhere"] for event in elsewhere} <= {"frankfurt", "paris", "oregon"}
    assert run["results"] > 0


@pytest.mark.parametrize("name", RUNS)
def test_the_interfaces_count_what_is_reported(driven, name):
    run = driven[name]
    reported, measured = sum(run["reported"].values()), sum(run["measured"].values())
    assert 0.8 * measured < reported < measured, (run["reported"], run["measured"])
    # On a link with little traffic, most of it is Spark's own: some kilobytes for each job and each second.
    of_spark = 100_000 + 2_000 * run["seconds"]
    for link, size in run["reported"].items():
        assert size < run["measured"][link] < 1.2 * size + of_spark


def test_adaptive_against_fixed_and_sites_against_none(driven):
    print({name: (run["reported"], run["measured"], run["seconds"]) for name, run in driven.items()})
    adaptive, fixed, unsited = (sum(driven[name]["measured"].values()) for name in RUNS)
    assert len(set(driven["fixed"]["plans"])) == 1
    assert len(set(driven["adaptive"]["plans"])) > 1
    assert adaptive < 0.5 * fixed
    assert adaptive < 0.5 * unsited
