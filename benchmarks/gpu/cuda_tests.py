"""The tests of the workers that are marked `cuda`. In a dry run they are collected, and must exist."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.program import parse

_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run pytest and record the numbers of its summary."""
    given = parse(__doc__)
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "-p", "no:cacheprovider", "tests/workers"]
    command += ["--collect-only", "-q"] if given.is_dry else ["-v"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    for count, what in re.findall(r"(\d+)(?:/\d+)? (passed|failed|errors?|skipped|tests collected)", done.stdout):
        given.values.record(what, int(count))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
