"""Which Python Spark's workers run."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def use_this_python(spark: SparkSession) -> None:
    """In local mode, run workers with the Python of this process.

    Spark would take the first ``python3`` on the path, which need not have Midstream. On a cluster
    ``spark.pyspark.python`` sets the path of the workers' Python.
    """
    context = spark.sparkContext
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
