"""A driver in a cluster with sites, which runs queries and then single tasks; started by ``SiteCluster``.

Arguments: the master, the address of this driver, as JSON a process at each site, and a folder for input and
output. Prints JSON.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.spark.site_cluster import session_at
from tests.spark.sited_queries import run_queries
from tests.spark.tasks_at_sites import run_tasks

# Nothing is compressed on its way, so that bytes are those of the messages.
SETTINGS = {"spark.shuffle.compress": "false"}


def main(master: str, address: str, keepers: Mapping[str, int], folder: Path) -> dict[str, object]:
    spark = session_at(master, address, len(keepers) - 1, SETTINGS)
    done: dict[str, object] = {"queries": run_queries(spark, keepers, folder)}
    # Spark has no patience after these.
    done["tasks"] = run_tasks(spark, keepers)
    spark.stop()
    return done


if __name__ == "__main__":
    _, argv_master, argv_address, argv_keepers, argv_folder = sys.argv
    print(json.dumps(main(argv_master, argv_address, json.loads(argv_keepers), Path(argv_folder))))
