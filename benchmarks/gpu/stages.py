"""The stages, in order of value: a session on a GPU may end after any of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage: a program that records values."""

    name: str
    title: str
    limit_s: float
    """Time after which the stage is ended. Its recorded values are kept."""
    program: tuple[str, ...]
    """Arguments of Python. The runner appends `--values FILE --folder FOLDER --device cpu|cuda`."""
    needs: tuple[str, ...] = ()
    """Packages without which the stage is skipped."""


def _module(name: str) -> tuple[str, ...]:
    return ("-m", f"benchmarks.gpu.{name}")


STAGES = (
    Stage("smoke", "device check, fork, CUDA context, first steps in bf16 on one rank", 180, _module("smoke")),
    Stage("tests", "tests of the workers that need a CUDA device", 300, _module("cuda_tests"), ("pytest",)),
    Stage("state", "rates of snapshots and restores, and what they cost a step", 240, _module("state_rates")),
    Stage("recovery", "from a kill to the first step, by phase and size of the model", 300, _module("recovery")),
    Stage("speed", "model FLOPs utilization, compared with matrix products and a plain loop", 480, _module("speed")),
    Stage("service", "kills and device errors of jobs on Ray", 480, _module("service"), ("ray",)),
)
