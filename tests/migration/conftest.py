"""Exhaustive tests take minutes: they run only if they are selected by their marker."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "exhaustive" in config.option.markexpr:
        return
    deselected = [item for item in items if item.get_closest_marker("exhaustive")]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
