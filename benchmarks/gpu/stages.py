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
    dry_values: tuple[str, ...] = ()
    """Values that a dry run must record. The names of values on a GPU contain the sizes of its models."""


def _module(name: str) -> tuple[str, ...]:
    return ("-m", f"benchmarks.gpu.{name}")


STAGES = (
    Stage(
        "smoke", "device check, fork, CUDA context, first steps in bf16 on one rank", 180, _module("smoke"),
        dry_values=("device_check_s", "fork_to_context_s", "launcher.toy", "fork_to_first_step_s.toy", "losses.toy"),
    ),
    Stage(
        "tests", "tests of the workers that need a CUDA device", 300, _module("cuda_tests"), ("pytest",),
        dry_values=("passed",),
    ),
    Stage(
        "state", "rates of snapshots and restores, and what they cost a step", 240, _module("state_rates"),
        dry_values=("snapshot_d2h_ratio.16MiB", "restore_bytes_per_s.16MiB"),
    ),
    Stage(
        "recovery", "from a kill to the first step, by phase and size of the model", 300, _module("recovery"),
        dry_values=("kill_to_first_step_s.toy", "restored_to_first_step_s.toy", "bitwise_equal.toy"),
    ),
    Stage(
        "speed", "model FLOPs utilization, compared with matrix products and a plain loop", 480, _module("speed"),
        dry_values=(
            "matmul_flops_per_s", "ratio_plain_loop.compile_default", "mfu_over_matmul_ceiling.compile_off",
            "trainer_step_s.recomputed", "trainer_step_s.offloaded", "predicted_step_s.compile_off",
            "not_predicted.offloaded",
        ),
    ),
    Stage(
        "service", "kills and device errors of jobs on Ray", 480, _module("service"), ("ray",),
        dry_values=("incidents", "bitwise_equal", "hang"),
    ),
)  # fmt: skip
