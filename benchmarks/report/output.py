"""Command-line arguments that all benchmarks share, and the writer of their results."""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.report.facts import machine_facts


def arguments(description: str, trials: int) -> argparse.ArgumentParser:
    """Return a parser with `--json PATH` and `--trials N`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, required=True, metavar="PATH", help="path of the result file")
    parser.add_argument(
        "--trials", type=int, default=trials, metavar="N", help=f"number of repetitions, default {trials}"
    )
    return parser


def end_tidily_on_sigterm() -> None:
    """Make SIGTERM unwind the stack, so that the benchmark also ends the clusters and ranks that it started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def write_result(path: Path, document: dict[str, Any]) -> None:
    """Write a result with the machine facts, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({**document, "machine": machine_facts()}, indent=1) + "\n")
    part.replace(path)
