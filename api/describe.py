"""Writes the API's description: `python -m regroup.api.describe [PATH]`."""

import json
import sys
from pathlib import Path

from regroup.api.app import openapi

COMMITTED = Path(__file__).resolve().parents[1] / "docs" / "openapi.json"
"""In a checkout; a test fails when it is not what the code says."""


def main(path: Path = COMMITTED) -> None:
    """Write it."""
    path.write_text(json.dumps(openapi(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
