"""Tests of pages are slow: `make test-more` runs them. `make test` runs those of the frame."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
IN_EACH_RUN = "test_frame.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_page = FOLDER in item.path.parents and item.get_closest_marker("browser") is not None
        if is_page and item.path.name != IN_EACH_RUN:
            item.add_marker(pytest.mark.slow)
