"""Print the share of lines that tests executed, and the files with the most others: `python .ci/coverage.py FILE`."""

import json
import sys
from pathlib import Path

_FILES = 10


def main(path: str) -> int:
    """Read SlipCover's JSON and print the summary."""
    found = json.loads(Path(path).read_text())
    missing = {name: len(each["missing_lines"]) for name, each in found["files"].items()}
    percent = found["summary"]["percent_covered_display"]
    print(f"coverage, without end-to-end tests and those of the Ray adapter: {percent} % of lines;")
    print(f"{path} lists the others. Files with the most:")
    for name in sorted(missing, key=lambda name: -missing[name])[:_FILES]:
        print(f"{missing[name]:5}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
