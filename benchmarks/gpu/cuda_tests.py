"""The tests of the workers that are marked `cuda`. A dry run does the same on the CPU, where a test can."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.program import parse

_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run pytest and record the numbers of its summary."""
    given = parse(__doc__)
    marker = "cuda_twin" if given.is_dry else "cuda"
    command = [sys.executable, "-m", "pytest", "-v", "-m", marker, "-p", "no:cacheprovider", "tests/workers"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    for count, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout.rpartition("\n=")[2]):
        given.values.record(what, int(count))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
