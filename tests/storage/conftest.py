"""A small checkpoint for tests to spoil, and drivers that do not wait long for one another."""

import shutil
from pathlib import Path

import pytest

from midstream.storage import lease as leases
from tests.small_case import make_checkpoint


@pytest.fixture(scope="package")
def sound(tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def checkpoint(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "checkpoint"))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(leases, "LEASE_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(leases, "_POLL_SECONDS", 0.01)
