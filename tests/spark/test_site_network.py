"""Sites as network namespaces: their links, and that nothing is left of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.site_network import NoNetworkError, SiteNetwork, sent_bytes

NAMES = ["here", "there", "elsewhere"]
SLOW = {("here", "there"): "8mbit"}
SERVER = """
import socket
with socket.create_server(("{}", 5000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    with connection:
        while connection.recv(1 << 16):
            pass
"""
CLIENT = """
import socket
with socket.create_connection(("{}", 5000)) as connection:
    connection.sendall(bytes({}))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
"""
# Makes a network, says who keeps it, and waits to be killed.
OWNER = f"""
import time
from tests.spark.site_network import SiteNetwork
network = SiteNetwork({{}}, {NAMES})
print(*network.keepers.values(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def network():
    try:
        network = SiteNetwork(SLOW, NAMES)
    except NoNetworkError as reason:
        pytest.skip(str(reason))
    yield network
    network.close()


@pytest.mark.parametrize(("source", "target"), [("here", "there"), ("elsewhere", "here")])
def test_what_is_sent_goes_over_its_own_link(network, source, target):
    size = 500_000
    python = [sys.executable, "-c"]
    server = [*network.inside(target), *python, SERVER.format(network.address(target))]
    before = sent_bytes(network.keepers)
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "ready\n"
        begin = time.monotonic()
        client = CLIENT.format(network.address(target), size)
        subprocess.run([*network.inside(source), *python, client], check=True, timeout=60)
        seconds = time.monotonic() - begin
    sent = {link: after - before[link] for link, after in sent_bytes(network.keepers).items()}
    assert size < sent.pop(f"{source}->{target}") < 1.2 * size
    assert max(sent.values()) < 0.1 * size
    assert len(sent) == 5
    if (source, target) in SLOW:
        assert seconds > 0.8 * 8 * size / 8e6


def test_nothing_is_left_when_it_is_closed(network):
    keepers = network.keepers.values()
    assert all(Path(f"/proc/{keeper}").exists() for keeper in keepers)
    network.close()
    assert not any(Path(f"/proc/{keeper}").exists() for keeper in keepers)


def test_nothing_is_left_when_its_owner_is_killed(network):
    command = [sys.executable, "-c", OWNER]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as owner:
        assert owner.stdout is not None
        keepers = owner.stdout.readline().split()
        assert len(keepers) == len(NAMES)
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(_runs(keeper) for keeper in keepers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(keeper) for keeper in keepers)


def test_who_is_not_root_learns_why(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoNetworkError, match=r"only root may make|there is no"):
        SiteNetwork({}, NAMES)


def _runs(process: str) -> bool:
    """A process whose parent has died may wait for another to be noted as ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
