"""Values that the program of a stage records one by one, so that a stage that is ended keeps what it has measured."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Values:
    """A file with one JSON line per value."""

    def __init__(self, path: Path) -> None:
        self._path, self._begun_s = path, time.monotonic()

    def record(self, name: str, value: Any, **details: Any) -> None:
        """Append a value; also print it. Of several values with one name, the last one counts."""
        row = {"name": name, "value": value, "after_s": round(time.monotonic() - self._begun_s, 3), **details}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name} = {shown}" + (f"  {details}" if details else ""), flush=True)

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """Return the complete rows of a file, which may end within a row or not exist."""
        rows: list[dict[str, Any]] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows


def by_name(rows: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Return name → last value."""
    return {row["name"]: row["value"] for row in rows}
