"""What ``import midstream`` gives: every name for users, and Spark only when it is used."""

import subprocess
import sys

import pytest

import midstream


def test_dir_shows_every_name_for_users_and_nothing_else():
    assert dir(midstream) == sorted([*midstream.__all__, "__version__"])
    for name in dir(midstream):
        assert getattr(midstream, name) is not None


def test_names_are_not_imported_before_they_are_used():
    code = "import sys, midstream; dir(midstream); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Joint'"):
        midstream.Joint  # noqa: B018
