"""A folder with the streams that the pages talk about."""

from pathlib import Path

import pytest

from tests.docs.shop import write_shop


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a folder per stream, and in it a Parquet file per epoch."""
    write_shop(tmp_path)
    return tmp_path
