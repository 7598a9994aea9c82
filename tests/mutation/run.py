"""Try mutants in several workplaces at a time."""

import contextlib
import queue
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutation.modules import quick_tests_of
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.report import Verdict
from tests.mutation.workplace import Outcome, Workplace, workplace

_PASSED = 0
_BASELINE_LIMIT_S = 300.0


class BaselineFailed(Exception):
    """Tests fail without a mutant, so that they would say nothing about one."""


def try_mutants(
    mutants: Sequence[Mutant],
    root: Path,
    jobs: int,
    report_verdict: Callable[[Mutant, Verdict, float], None],
    tests_for: Callable[[str], Sequence[str]] = quick_tests_of,
    smallest_limit_s: float = 30.0,
) -> dict[Mutant, Verdict]:
    """Return the verdict on each mutant.

    All tests run once without a mutant. The time that they take together is the limit of those of one module, but at
    least `smallest_limit_s`.
    """
    tests = sorted({test for mutant in mutants for test in tests_for(mutant.module)})
    verdicts = dict.fromkeys(mutants, Verdict.LOST)
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        if mutant in mutants_of(mutant.module, (root / mutant.module).read_text()):
            waiting.put(mutant)
    limits_s = [smallest_limit_s]

    def try_without(place: Workplace, number: int) -> None:
        place.preload(sorted({test.partition("::")[0] for test in tests}))
        if mine := tests[number::jobs]:
            limits_s.append(_baseline_s(place, mine))

    def try_waiting(place: Workplace, _: int) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                mutant = waiting.get_nowait()
                outcome = place.run(tests_for(mutant.module), max(limits_s), mutant)
                verdicts[mutant] = _verdict(outcome)
                report_verdict(mutant, verdicts[mutant], outcome.seconds)

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="regroup-mutation-")))
        threads = stack.enter_context(
            ThreadPoolExecutor(jobs)
        )  # joined after its servers have ended, before the folder is removed
        places = [stack.enter_context(workplace(root, folder / str(number))) for number in range(jobs)]
        for work in (try_without, try_waiting):
            running = [threads.submit(work, place, number) for number, place in enumerate(places)]
            for done in as_completed(running):
                done.result()
    return verdicts


def _baseline_s(place: Workplace, tests: Sequence[str]) -> float:
    outcome = place.run(tests, _BASELINE_LIMIT_S)
    if outcome.code != _PASSED:
        end = "ran past the limit" if outcome.code is None else f"ended with {outcome.code}"
        raise BaselineFailed(f"the tests {end} without a mutant, so they say nothing about one:\n{outcome.log[-3000:]}")
    return outcome.seconds


def _verdict(outcome: Outcome) -> Verdict:
    if outcome.code is None:
        return Verdict.TIMED_OUT
    return Verdict.SURVIVED if outcome.code == _PASSED else Verdict.KILLED
