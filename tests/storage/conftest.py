"""A small checkpoint for tests to spoil."""

import shutil

import pytest

from midstream.inline import InlineJoin
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from tests.golden.case import EPOCHS, QUERY, SETTINGS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint of a few epochs."""
    folder = tmp_path_factory.mktemp("made")
    query = InlineJoin(QUERY, settings=SETTINGS, store=LocalStore(str(folder)))
    for epoch in EPOCHS[:3]:
        query.run_epoch(epoch)
    query.migrate("a (b c)", "moving_state")
    # So that nobody waits for this process to give the lease back.
    seize_lease(LocalStore(str(folder)), "test").release()
    return folder


@pytest.fixture
def checkpoint(made, tmp_path):
    return shutil.copytree(made, tmp_path / "checkpoint")
