"""A home of Spark whose Python workers import PySpark from where it is installed.

Spark puts the zip archive of PySpark in its home first on the path of its workers. Modules in an archive are
compiled anew in each process: a second of the processor for every JVM that runs a task. This home is Spark's
own but for the archive. Tests of clusters, of the demo and of sessions like its own have Spark's own home.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pyspark

_FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "d" / "spark"


def spark_home() -> Path:
    """The home; it is made when it is first needed."""
    installed = Path(pyspark.__file__).parent
    home = _FOLDER / hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        with contextlib.suppress(FileExistsError):
            (home / name).symlink_to(installed / name)
    return home
