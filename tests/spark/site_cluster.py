"""A standalone cluster with a worker at each of several sites; links between the sites are slow.

The master and the drivers are at a place of their own, whose links to the sites are as fast as the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from midstream.spark.site_tasks import SITE_VARIABLE
from tests.spark.site_network import SiteNetwork
from tests.spark.standalone import Daemons, wait_for_worker
from tests.spark_home import spark_home
from tests.spark_session import make_session

DRIVER = "driver"


def session_at(
    master: str, address: str, sites: int, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """The session of a driver, once it has an executor at every site."""
    return make_session(
        master,
        {
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.executor.memory": "512m",
            "spark.locality.wait": "60s",
            "spark.log.level": "ERROR",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.cores.max": str(sites),
            **settings,
        },
    )


class SiteCluster:
    """Where drivers are started."""

    def __init__(self, network: SiteNetwork, master: str, environment: Mapping[str, str]) -> None:
        self.network = network
        self._master = master
        self._environment = environment

    def drive(self, folder: Path) -> dict[str, Any]:
        """Run a driver to its end, which writes to a folder; gives what it has seen."""
        keepers = json.dumps(self.network.keepers)
        given = (self._master, self.network.address(DRIVER), keepers, str(folder))
        done = subprocess.run(
            [*self.network.inside(DRIVER), sys.executable, "-m", "tests.spark.site_main", *given],
            cwd=Path(__file__).parents[2],
            env={**self._environment, "SPARK_LOCAL_IP": self.network.address(DRIVER)},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return seen


@contextmanager
def start_site_cluster(folder: Path, sites: Sequence[str], bandwidth: str) -> Iterator[SiteCluster]:
    """A cluster whose workers have one core each, and links of one bandwidth, in words of ``tc``."""
    slow = {(one, other): bandwidth for one in sites for other in sites if one < other}
    with closing(SiteNetwork(slow, [DRIVER, *sites])) as network:
        daemons = Daemons(folder, spark_home())
        try:
            master = daemons.start_master(network.address(DRIVER), inside=network.inside(DRIVER))
            logs = [
                daemons.start_worker(
                    master,
                    *("--cores", "1", "--memory", "512m"),
                    host=network.address(site),
                    inside=network.inside(site),
                    environment={SITE_VARIABLE: site},
                )
                for site in sites
            ]
            for log in logs:
                wait_for_worker(log)
            yield SiteCluster(network, master, daemons.environment)
        finally:
            daemons.stop()
