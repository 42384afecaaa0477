from pathlib import Path

import pytest

from tools.check_imports import check


def violations(tmp_path: Path, module: str, code: str) -> list[str]:
    path = tmp_path / "midstream" / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")
    return check(tmp_path)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("errors.py", "import dataclasses"),
        ("values.py", "from midstream.errors import MidstreamError"),
        ("plan/order.py", "from midstream.query import Query\nfrom midstream import values"),
        ("plan/order.py", "from . import cost\nfrom .cost import Cost\nfrom ..query import Query"),
        ("plan/order.py", "import midstream.query\n\nq = midstream.query.Query()"),
        (
            "engine/probe.py",
            "import re\nimport polars\n\nfast = re.compile('x')",
        ),
        ("engine/probe.py", "from datetime import datetime\n\nepoch = datetime(1970, 1, 1)"),
        ("engine/probe.py", "def f(row):\n    return row.open, row.time.now()"),
        ("storage/files.py", "import os\nfrom pathlib import Path\nfrom midstream.state import S"),
        ("inline/run.py", "import time\nfrom midstream.storage import files"),
        ("spark/job.py", "import pandas\nfrom pyspark.sql import SparkSession"),
        ("testing/oracle.py", "import duckdb\nimport hypothesis\nimport midstream.spark.job"),
        ("demo/run.py", "import duckdb, pyspark\nfrom midstream.testing import oracle"),
        ("cli/main.py", "from midstream import Join\nfrom midstream.demo import run"),
        ("__init__.py", "from midstream.inline import run"),
        ("__main__.py", "from midstream.cli.main import app"),
    ],
)
def test_what_the_rules_allow_passes(tmp_path, module, code):
    assert violations(tmp_path, module, code) == []


@pytest.mark.parametrize(
    ("module", "code", "about"),
    [
        # A lower part importing a higher one, however it is written.
        ("query/parse.py", "from midstream.plan import Plan", "midstream.plan"),
        ("query/parse.py", "import midstream.plan.order", "midstream.plan"),
        ("query/parse.py", "from midstream import plan", "midstream.plan"),
        ("query/parse.py", "from ..plan import Plan", "midstream.plan"),
        ("query/deep/parse.py", "from ...plan import Plan", "midstream.plan"),
        ("query/__init__.py", "from ..plan import Plan", "midstream.plan"),
        ("query/parse.py", "def f():\n    import midstream.engine", "midstream.engine"),
        ("errors.py", "from .values import Row", "midstream.values"),
        ("state/log.py", "from midstream import Join", "not midstream."),
        ("engine/probe.py", "from midstream.storage import files", "midstream.storage"),
        # The shell.
        ("storage/files.py", "from midstream.inline import run", "midstream.inline"),
        ("inline/run.py", "from midstream.spark import job", "midstream.spark"),
        ("spark/job.py", "from midstream.testing import oracle", "midstream.testing"),
        ("testing/kit.py", "from midstream.cli.main import app", "midstream.cli"),
        # Packages with a place.
        ("inline/run.py", "import pyspark.sql", "pyspark"),
        ("engine/probe.py", "from pyspark.sql import Row", "pyspark"),
        ("testing/kit.py", "from py4j import java_gateway", "py4j"),
        ("storage/files.py", "import duckdb", "duckdb"),
        ("demo/run.py", "import hypothesis", "hypothesis"),
        # A core that looks outside.
        ("engine/probe.py", "import os.path", "os"),
        ("engine/probe.py", "import os\n\nos.remove('x')\nos.remove('y')", "os"),
        ("engine/probe.py", "from pathlib import Path", "pathlib"),
        ("values.py", "import pandas as pd", "pandas"),
        ("state/log.py", "from time import monotonic", "time"),
        ("plan/order.py", "import random", "random"),
        ("protocol/turn.py", "text = open('x').read()", "builtins.open"),
        ("protocol/turn.py", "import builtins\n\nbuiltins.open('x')", "builtins.open"),
        ("protocol/turn.py", "readers = map(open, names)", "builtins.open"),
        ("protocol/turn.py", "compile('1', '', 'eval')", "builtins.compile"),
        ("protocol/turn.py", "__import__('os')", "builtins.__import__"),
        ("protocol/turn.py", "import datetime as d\n\nd.datetime.now()", "datetime.datetime.now"),
        ("protocol/turn.py", "from datetime import datetime as D\n\nD.utcnow()", "utcnow"),
        ("protocol/turn.py", "from datetime import date\n\nclock = date.today", "date.today"),
        # Code that arrives as data.
        ("engine/probe.py", "import pickle", "pickle"),
        ("spark/job.py", "import cloudpickle", "cloudpickle"),
        ("spark/job.py", "from pyspark import cloudpickle", "pyspark.cloudpickle"),
        ("storage/files.py", "from marshal import loads", "marshal"),
        ("inline/run.py", "import shelve", "shelve"),
        ("storage/files.py", "import _pickle", "_pickle"),
        ("storage/files.py", "import dill as d", "dill"),
        ("storage/files.py", "import yaml\n\nyaml.load('x')", "yaml"),
        ("storage/files.py", "from joblib import load", "joblib"),
        ("storage/files.py", "import jsonpickle", "jsonpickle"),
        ("storage/files.py", "import numpy as np\n\nnp.load('x')", "numpy.load"),
        ("spark/job.py", "import pandas\n\npandas.read_pickle('x')", "pandas.read_pickle"),
        ("spark/job.py", "from pyspark.serializers import CPickleSerializer", "pyspark.serializers"),
        ("storage/files.py", "import polars as pl\n\npl.Expr.deserialize(b'')", "polars.Expr.deserialize"),
        ("storage/files.py", "from polars import LazyFrame\n\nLazyFrame.deserialize(b'')", "LazyFrame"),
        ("storage/files.py", "import os\n\nos.system('x')", "os.system"),
        ("storage/files.py", "compile('1', '', 'eval')", "builtins.compile"),
        ("storage/files.py", "__import__('os')", "builtins.__import__"),
        ("cli/main.py", "import importlib\n\nimportlib.import_module('x')", "importlib.import_module"),
        ("cli/main.py", "eval('1')", "builtins.eval"),
        ("testing/kit.py", "exec('1')", "builtins.exec"),
        # A part nobody gave a place.
        ("helpers.py", "", "helpers"),
    ],
)
def test_each_violation_is_reported(tmp_path, module, code, about):
    (found,) = violations(tmp_path, module, code)

    assert found.startswith(f"{tmp_path / 'midstream' / module}:")
    assert about in found


def test_the_line_is_that_of_the_use_and_not_of_the_import(tmp_path):
    code = "from datetime import datetime\n\n\nnow = datetime.now()\n"

    (found,) = violations(tmp_path, "engine/clock.py", code)

    assert found.startswith(f"{tmp_path / 'midstream' / 'engine' / 'clock.py'}:4: ")


def test_a_project_without_sources_passes(tmp_path):
    assert check(tmp_path / "src") == []


def test_this_project_passes():
    assert check(Path(__file__).parents[2] / "src") == []
