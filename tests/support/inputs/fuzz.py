"""Tests with random inputs: few fixed examples in the normal suite, random ones for some time in `make fuzz`."""

import functools
import gc
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

VARIABLE = "REGROUP_FUZZ_S"
"""Environment variable with the seconds that each test runs. Unset: a fixed number of fixed examples."""
_EXAMPLES_PER_ROUND = 1000
"""One round of hypothesis keeps all its examples in memory, so a long run has many rounds."""
_MAX_EDITS = 8
_CHECKS = tuple(HealthCheck)


class _TimedSettings(settings):
    """Settings of a test that is repeated with other examples until the time has passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            max_examples=_EXAMPLES_PER_ROUND, derandomize=False, print_blob=True,
            suppress_health_check=_CHECKS,
        )  # fmt: skip
        self.__dict__["_seconds"] = seconds

    def __call__(self, test: Any) -> Any:
        """Return the repeated test."""
        marked: Callable[..., None] = super().__call__(test)

        @functools.wraps(marked)
        def repeat(*args: Any, **kwargs: Any) -> None:
            until_s = time.monotonic() + self.__dict__["_seconds"]
            rounds = 0
            while rounds == 0 or time.monotonic() < until_s:
                marked(*args, **kwargs)
                rounds += 1
            print(f"{marked.__name__}: {rounds} rounds of {_EXAMPLES_PER_ROUND} examples")

        return repeat


def fuzz_settings(default_examples: int, *, tests: int = 1) -> settings:
    """Return the settings of a test with random inputs. Apply them above `given`.

    Args:
        default_examples: number of examples without the variable. They are the same in each run.
        tests: number of parametrized tests that share the time.
    """
    if seconds := os.environ.get(VARIABLE):
        return _TimedSettings(float(seconds) / tests)
    return settings(max_examples=default_examples, derandomize=True, suppress_health_check=_CHECKS)


@contextmanager
def limited_time(limit_s: float = 1.0) -> Generator[None]:
    """Fail if the block uses more processor time than `limit_s`: time of this thread, without garbage collection.

    So neither other processes nor the objects that hypothesis keeps matter.
    """
    had_gc = gc.isenabled()
    gc.disable()
    began_s = time.thread_time()
    try:
        yield
    finally:
        used_s = time.thread_time() - began_s
        if had_gc:
            gc.enable()
    assert used_s < limit_s, f"{used_s:.2f} s of processor time, the limit is {limit_s:g} s"


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[str], pieces: Sequence[str]) -> str:
    """Return one of the seeds with parts removed, repeated or inserted.

    Args:
        seeds: Valid and invalid texts.
        pieces: Texts that have a meaning in the format.
    """
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, _MAX_EDITS))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        inserted = draw(st.sampled_from(["", text[start:end] * 2, *pieces]) | st.text(max_size=3))
        text = text[:start] + inserted + text[end:]
    return cast(str, text)
