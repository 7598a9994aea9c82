"""Write the input of prepare-cpython.yaml: one line of jsonl for each module of the Python standard library.

python examples/prepare_cpython.py examples/cpython.jsonl
"""

import json
import sys
import sysconfig
from pathlib import Path

PACKAGES = ("asyncio", "concurrent/futures", "email", "json", "logging", "unittest")


def main(target: Path) -> None:
    """Write one object per module: its name and its source code."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    modules = [path for package in PACKAGES for path in sorted((stdlib / package).glob("*.py"))]
    with target.open("w", encoding="utf-8") as file:
        for module in modules:
            row = {"module": module.relative_to(stdlib).as_posix(), "source": module.read_text(encoding="utf-8")}
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
