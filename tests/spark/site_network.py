"""Sites on one machine, with slow links: each is a network namespace, and any two have a link of their own.

A site has one address. A link is a pair of virtual interfaces, each named after the site at its other end: so
the kernel counts what goes over every link in either direction. Bandwidth is limited where bytes leave a
site. There is no latency, which takes netem.

A namespace is kept by a process that dies with this one. So nothing of it is left, however this one ends: a
namespace goes with the last process in it, and its interfaces with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

_PROGRAMS = ("ip", "tc", "nsenter", "unshare", "setpriv", "sh")
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_KEEPER = "ip link set lo up && echo ready && exec sleep infinity"
_SENT = 8
"""Which of an interface's figures in ``/proc/net/dev`` is the number of bytes that it has sent."""


class NoNetworkError(Exception):
    """Sites cannot be made here; the message says why."""


class SiteNetwork:
    """Running sites, until they are closed."""

    def __init__(self, bandwidths: Mapping[tuple[str, str], str], names: Sequence[str]) -> None:
        """Links whose bandwidth is not given, in words of ``tc``, are as fast as the machine."""
        self.names = tuple(names)
        self._bandwidths = {frozenset(link): bandwidth for link, bandwidth in bandwidths.items()}
        self._keepers: dict[str, subprocess.Popen[str]] = {}
        missing = [program for program in _PROGRAMS if shutil.which(program) is None]
        if missing:
            raise NoNetworkError(f"there is no {', '.join(missing)}")
        if os.geteuid() != 0:
            raise NoNetworkError("only root may make network namespaces")
        try:
            for name in self.names:
                self._keepers[name] = _keeper()
            for name in self.names:
                self._connect(name)
        except BaseException:
            self.close()
            raise

    @property
    def keepers(self) -> dict[str, int]:
        """For each site a process in its namespace."""
        return {name: keeper.pid for name, keeper in self._keepers.items()}

    def address(self, name: str) -> str:
        """Where a site is reached from others."""
        return f"10.77.0.{1 + self.names.index(name)}"

    def inside(self, name: str) -> list[str]:
        """What to write before a command so that it runs at a site, and dies with this process."""
        return [*_DIES_WITH_US, "nsenter", f"--net=/proc/{self._keepers[name].pid}/ns/net"]

    def close(self) -> None:
        """Remove the namespaces in which no process runs any more."""
        for keeper in self._keepers.values():
            keeper.kill()
            keeper.communicate()

    def _connect(self, name: str) -> None:
        """Give a site its address, and links to the sites before it."""
        at = self.names.index(name)
        self._run(name, f"ip addr add {self.address(name)}/32 dev lo")
        for other in self.names[:at]:
            keeper = self._keepers[other].pid
            self._run(name, f"ip link add {other} type veth peer name {name} netns {keeper}")
            for one, far in permutations((name, other)):
                self._run(one, f"ip link set {far} up")
            for one, far in permutations((name, other)):
                self._run(one, f"ip route add {self.address(far)} dev {far} src {self.address(one)}")
                if bandwidth := self._bandwidths.get(frozenset((name, other))):
                    limit = f"rate {bandwidth} burst 64kb latency 500ms"
                    self._run(one, f"tc qdisc add dev {far} root tbf {limit}")

    def _run(self, name: str, command: str) -> None:
        _run([*self.inside(name), *command.split()])


def sent_bytes(keepers: Mapping[str, int]) -> dict[str, int]:
    """The bytes that have gone over each link in each direction, such as ``frankfurt->oregon``."""
    sent = {}
    for name, keeper in keepers.items():
        for line in Path(f"/proc/{keeper}/net/dev").read_text().splitlines()[2:]:
            interface, figures = line.split(":")
            if interface.strip() in keepers:
                sent[f"{name}->{interface.strip()}"] = int(figures.split()[_SENT])
    return sent


def _keeper() -> subprocess.Popen[str]:
    command = [*_DIES_WITH_US, "unshare", "--net", "sh", "-c", _KEEPER]
    keeper = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert keeper.stdout is not None
    if keeper.stdout.readline() != "ready\n":
        raise NoNetworkError(f"no network namespace can be made: {keeper.communicate()[1].strip()}")
    return keeper


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNetworkError(f"links cannot be made: {' '.join(command)}: {done.stderr.strip()}")
