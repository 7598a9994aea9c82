"""Input files of the folder `shared/cases` next to the checkout, which not every checkout has."""

from pathlib import Path

import pytest

_CASES = Path(__file__).resolve().parents[3].parent / "shared" / "cases"


def shared_cases(name: str) -> Path:
    """Return a folder of cases. Skip the test if it does not exist."""
    folder = _CASES / name
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder
