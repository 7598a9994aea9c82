"""Prove the CUDA path on one GPU, stage by stage: `python -m benchmarks.gpu` (`make gpu`).

Each stage stores raw results with the facts of the machine. A stage that has passed on this commit is not run again, so
an interrupted run continues where it ended.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.runner import run_stage
from benchmarks.gpu.stages import STAGES, Stage
from benchmarks.gpu.summary import figures
from benchmarks.report.facts import machine_facts
from benchmarks.report.output import write_result

_RESULTS = Path(__file__).resolve().parents[1] / "results/gpu"
_DRY_RESULTS = Path(__file__).resolve().parents[2] / "build/gpu-dry-run"
_SHOWN_LINES = 30
_NAMES = [stage.name for stage in STAGES]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen stages; exit 1 if one of them did not pass."""
    given = _parser().parse_args(argv)
    if given.list:
        for stage in STAGES:
            print(f"{stage.name:10} {stage.limit_s:4.0f} s  {stage.title}")
        return 0
    device = "cpu" if given.dry_run else "cuda"
    results: Path = given.results or (_DRY_RESULTS if given.dry_run else _RESULTS)
    chosen, deadline = _chosen(given.start, given.only), time.monotonic() + given.minutes * 60
    failed: list[str] = []
    for number, stage in enumerate(chosen, 1):
        label = f"[{number}/{len(chosen)}] {stage.name}"
        if not given.again and _has_passed(results, stage, device):
            print(f"{label}: passed before on this commit; --again runs it again", flush=True)
            continue
        limit_s = min(stage.limit_s, deadline - time.monotonic())
        if limit_s <= 0:
            print(
                f"{label}: not run: {given.minutes:g} minutes have passed. Continue with --from {stage.name}",
                flush=True,
            )
            failed.append(stage.name)
            continue
        print(f"{label}: {stage.title} (at most {limit_s:.0f} s)", flush=True)
        outcome = run_stage(stage, results, device, limit_s)
        print(f"{label}: {outcome.state} after {outcome.seconds:g} s {outcome.reason}".rstrip(), flush=True)
        if outcome.state != "passed":
            failed.append(stage.name)
            log = results / f"{stage.name}.log"
            print(f"  end of {log}:\n{_tail(log)}", flush=True)
    write_result(results.with_suffix(".json"), figures(results))
    print(f"results: {results}" + (f"; not passed: {', '.join(failed)}" if failed else ""), flush=True)
    return 1 if failed else 0


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    return "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="run every stage on the CPU with gloo, at toy size")
    parser.add_argument("--from", dest="start", choices=_NAMES, help="begin with this stage")
    parser.add_argument("--only", nargs="+", choices=_NAMES, help="run these stages")
    parser.add_argument("--again", action="store_true", help="also run stages that have passed on this commit")
    parser.add_argument("--minutes", type=float, default=40.0, help="time for all stages together, default 40")
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--list", action="store_true", help="list the stages and exit")
    return parser


def _chosen(start: str | None, only: Sequence[str] | None) -> list[Stage]:
    first = _NAMES.index(start) if start else 0
    return [stage for stage in STAGES[first:] if not only or stage.name in only]


def _has_passed(results: Path, stage: Stage, device: str) -> bool:
    try:
        stored = json.loads((results / f"{stage.name}.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    now = machine_facts()
    same = stored["machine"]["commit"] == now["commit"] and not now["uncommitted_changes"]
    return stored["state"] == "passed" and stored["device"] == device and same


if __name__ == "__main__":
    sys.exit(main())
