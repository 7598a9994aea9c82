"""Memory, waiting and utilization of a step."""

import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from regroup.workers.parallel.block_costs import step_flops
from regroup.workers.parallel.step_metrics import StepMeter

CPU = torch.device("cpu")


def meter(rank: int = 0, world_size: int = 1) -> StepMeter:
    return StepMeter(CPU, torch.float32, rank, world_size)


def work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_waiting_is_what_was_not_work() -> None:
    one = meter()
    one.begin()
    work(0.1)
    time.sleep(0.3)
    one.end()
    found = one.own()
    assert found["waited"] == pytest.approx(0.3, abs=0.1)
    assert found["passed"] >= 0.4
    one.begin()
    work(0.2)
    one.end()
    assert one.own()["waited"] < 0.1


_PEAKS = """
import torch
from regroup.workers.parallel.step_metrics import StepMeter

one, size = StepMeter(torch.device("cpu"), torch.float32, 0, 1), 128 << 20

def peak(held_bytes):
    one.begin()
    held = torch.ones(held_bytes // 4)
    one.end()
    return one.own()["peak 0"]

peak(4)
print(*(int(peak(held)) for held in (4, size, 4)))
"""


def test_the_peak_is_that_of_the_step() -> None:
    """Run in a separate process: the kernel may reclaim memory of this one, which ran many tests."""
    done = subprocess.run([sys.executable, "-c", _PEAKS], capture_output=True, text=True, timeout=120, check=True)
    before, with_it, after = (int(word) for word in done.stdout.split())
    assert with_it - before > 0.9 * (128 << 20)
    assert with_it - after > 0.9 * (128 << 20)


def test_facts_are_read_from_sums_over_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 12.0, 16.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    one = meter(0, 3)
    total = {"peak 0": 5.0, "peak 1": 7.0, "peak 2": 7.0, "peak_flops": 300.0, "waited": 1.5, "passed": 6.0}
    assert one.facts(total, flops=0) == {"peak_bytes": 7, "peak_rank": 1, "exposed_communication": 0.25}
    assert one.facts(total, flops=120)["mfu"] == 120 / (2 * 300)
    assert one.facts({**total, "peak_flops": 0.0}, flops=120).keys() == {
        "peak_bytes",
        "peak_rank",
        "exposed_communication",
    }


def test_a_single_rank_never_waits_and_an_unknown_gpu_has_no_peak() -> None:
    total = {"peak 0": 5.0, "peak_flops": 0.0, "waited": 1.0, "passed": 2.0}
    assert meter().facts(total, flops=1) == {"peak_bytes": 5, "peak_rank": 0}


def test_a_cpu_is_measured() -> None:
    one = meter()
    one.measure({})
    assert 1e8 < one.own()["peak_flops"] < 1e14


@pytest.mark.parametrize("family", ["transformer", "convnet"])
def test_operations_are_those_of_the_formula(family: str) -> None:
    from regroup.workers.models import build_model

    if family == "transformer":
        layers, dim, hidden, vocabulary, batch, sequence = 3, 32, 64, 40, 2, 16
        config: dict[str, Any] = {
            "family": family, "dim": dim, "layers": layers, "heads": 4, "ffn_dim": hidden, "rope_theta": 1e4,
            "norm_eps": 1e-5, "tie_embeddings": False,
        }  # fmt: skip
        example = torch.empty((batch, sequence), dtype=torch.int64, device="meta")
        weights = layers * (4 * dim * dim + 3 * dim * hidden) + dim * vocabulary
        # Two products of attention; as everywhere, the half that causality masks is counted.
        attention = layers * 2 * 2 * batch * sequence * sequence * dim
        forward = 2 * weights * batch * sequence + attention
    else:
        layers, dim, hidden, vocabulary, batch, side = 2, 8, 16, 10, 4, 6
        config = {
            "family": family, "channels": 3, "classes": vocabulary, "dim": dim, "layers": layers, "ffn_dim": hidden,
            "norm_over": "micro_batch", "norm_eps": 1e-5, "norm_momentum": 0.1,
        }  # fmt: skip
        example = torch.empty((batch, 3, side, side), device="meta")
        places = batch * side * side
        forward = 2 * places * (9 * 3 * dim + layers * (9 * dim + 2 * dim * hidden)) + 2 * batch * dim * vocabulary
    assert step_flops(lambda: build_model(config, vocabulary), example) == 3 * forward
