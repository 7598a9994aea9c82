"""`python -m tests.mutation`: try the sample of mutants; exit 1 if the tests notice too few."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from tests.mutation.modules import ROOT, modules
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.report import Report, Verdict, summary
from tests.mutation.run import BaselineFailed, try_mutants
from tests.mutation.sample import draw, explanations, sample, write_sample


def main() -> int:
    """Run the command."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the copies of the tree are removed
    candidates = _candidates(arguments.only) if arguments.resample or arguments.all else []
    if arguments.resample:
        write_sample(draw(candidates, () if arguments.resample == "all" else sample()))
        return 0
    mutants = (
        candidates if arguments.all else [each for each in sample() if each.module.startswith(tuple(arguments.only))]
    )
    began_s = time.monotonic()
    try:
        verdicts = try_mutants(
            mutants, ROOT, arguments.jobs, _report_verdict if arguments.verbose else _report_survivors
        )
    except KeyboardInterrupt:
        return 130
    except BaselineFailed as error:
        print(error, file=sys.stderr)
        return 2
    report = Report(verdicts, explanations())
    print(*summary(report), sep="\n")
    print(f"in {time.monotonic() - began_s:.0f} s")
    return 1 if report.faults else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("only", nargs="*", default=[""], help="try only mutants of these modules or folders")
    parser.add_argument("--all", action="store_true", help="try all mutants, not the sample (hours)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time")
    parser.add_argument("--verbose", action="store_true", help="print each verdict")
    parser.add_argument(
        "--resample",
        nargs="?",
        const="lost",
        choices=["lost", "all"],
        help="write sample.toml: draw other mutants for those whose lines are gone, or for all",
    )
    return parser.parse_args()


def _candidates(only: Sequence[str]) -> list[Mutant]:
    return [
        mutant
        for module in modules()
        if module.startswith(tuple(only))
        for mutant in mutants_of(module, (ROOT / module).read_text())
    ]


def _report_verdict(mutant: Mutant, verdict: Verdict, seconds: float) -> None:
    print(f"{verdict} in {seconds:.1f} s: {mutant}", flush=True)


def _report_survivors(mutant: Mutant, verdict: Verdict, seconds: float) -> None:
    if verdict is Verdict.SURVIVED:
        _report_verdict(mutant, verdict, seconds)


if __name__ == "__main__":
    sys.exit(main())
