"""Which requests the simulator lets an epoch apply: those that are taken, or may have been, each once."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from msgspec.structs import replace

from midstream.inline import InlineJoin
from midstream.migration.request import StoredMigrationRequest
from midstream.protocol.intent import Intent
from midstream.testing.migration_promises import MigrationPromises
from midstream.testing.outcome import SimulationOutcome
from midstream.testing.promises import Promises
from midstream.testing.rescales import Rescales
from midstream.testing.workload import draw_workload
from tests.small_case import QUERY, SETTINGS

ONE = StoredMigrationRequest("(a b) c", "moving_state", True, None)
OTHER = StoredMigrationRequest("a (b c)", "moving_state", True, None)


@pytest.fixture
def promises() -> MigrationPromises:
    rescales = Rescales(SimulationOutcome(1, ""))
    return Promises(draw_workload(random.Random(1), 1), rescales).migration_promises


def intent(epoch: int, request: StoredMigrationRequest | None) -> Intent:
    first = InlineJoin(QUERY, settings=SETTINGS)._runner.new_intent(0, None)
    return replace(first, epoch=epoch, request=request)


def fail(promises: MigrationPromises, request: StoredMigrationRequest) -> None:
    with suppress(OSError), promises.requesting(request, others_paused=False):
        raise OSError


def take(
    promises: MigrationPromises, request: StoredMigrationRequest, *, others_paused: bool = False
) -> None:
    with promises.requesting(request, others_paused=others_paused):
        pass


def test_a_request_may_be_applied_later_if_a_driver_that_was_paused_may_begin_an_epoch(promises):
    take(promises, ONE, others_paused=True)
    assert promises.begin(intent(0, None)) is None
    assert promises.begin(intent(1, ONE)) is None


def test_a_request_that_was_taken_is_applied_once(promises):
    take(promises, ONE)
    assert promises.begin(intent(0, None)) is not None
    assert promises.begin(intent(0, ONE)) is None
    assert promises.begin(intent(1, ONE)) is not None
    assert promises.begin(intent(1, None)) is None


@pytest.mark.parametrize("applied", [ONE, None])
def test_a_request_that_is_being_made_may_be_applied(promises, applied):
    with promises.requesting(ONE, others_paused=False):
        # Another driver, while this one is paused.
        assert promises.begin(intent(0, applied)) is None


def test_a_request_that_is_being_made_is_applied_once(promises):
    with suppress(OSError), promises.requesting(ONE, others_paused=False):
        assert promises.begin(intent(0, ONE)) is None
        assert promises.begin(intent(1, ONE)) is not None
        raise OSError
    assert promises.begin(intent(1, ONE)) is not None


@pytest.mark.parametrize("applied", [ONE, None])
def test_a_request_that_failed_may_be_applied(promises, applied):
    fail(promises, ONE)
    assert promises.begin(intent(0, applied)) is None
    assert promises.begin(intent(1, OTHER)) is not None


def test_the_last_request_that_was_taken_takes_the_place_of_those_before_it(promises):
    fail(promises, ONE)
    take(promises, ONE)
    take(promises, OTHER)
    assert promises.begin(intent(0, ONE)) is not None
    assert promises.begin(intent(0, OTHER)) is None
    assert promises.begin(intent(1, ONE)) is not None


def test_a_request_of_an_intent_that_was_replaced_still_waits(promises):
    take(promises, ONE)
    assert promises.begin(intent(0, ONE)) is None
    promises.undo(intent(0, ONE))
    assert promises.begin(intent(0, None)) is not None
    assert promises.begin(intent(0, ONE)) is None
