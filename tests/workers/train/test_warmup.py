"""The warm-up leaves nothing behind that ranks could notice, and nothing that forbids a fork."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from regroup.workers.contract.codec import plain
from regroup.workers.contract.rank_config import ParallelConfig, RankConfig, WarmupConfig
from regroup.workers.train.warmup import warm_up

KINDS = [("fsdp", False), ("fsdp", True), ("ddp", False), ("zero1", False)]
MODEL = {"family": "transformer", "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False}


@pytest.mark.parametrize(("kind", "is_tensor_parallel"), KINDS)
def test_every_kind_warms_up_and_leaves_no_group_and_as_many_threads(kind: str, is_tensor_parallel: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        config = RankConfig(model=MODEL, parallel=ParallelConfig(kind))
        warm_up(plain(WarmupConfig(config, is_tensor_parallel)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert not dist.is_initialized()


def test_a_model_that_cannot_be_built_leaves_no_group_either() -> None:
    with pytest.raises(Exception, match="unknown model family"):
        warm_up(plain(WarmupConfig(RankConfig(model=MODEL | {"family": "unknown"}), False)))
    assert not dist.is_initialized()


@pytest.mark.parametrize(("kind", "is_tensor_parallel"), KINDS)
def test_it_asks_for_no_device_and_runs_no_backward_pass(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_tensor_parallel: bool
) -> None:
    calls = list[str]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: calls.append("is_available"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: calls.append("device_count") or 0)
    monkeypatch.setattr(torch.autograd, "backward", lambda *_args, **_options: calls.append("backward"))
    warm_up(plain(WarmupConfig(RankConfig(model=MODEL, parallel=ParallelConfig(kind)), is_tensor_parallel)))
    assert calls == []


WARMS_UP = f"""
import importlib, os
from regroup.service.supervisor.job_state import job_config
for module in job_config._ALWAYS_PRELOADED:
    importlib.import_module(module)
before = len(os.listdir("/proc/self/task"))
from regroup.workers.contract.codec import plain
from regroup.workers.contract.rank_config import ParallelConfig, RankConfig, WarmupConfig
from regroup.workers.train.warmup import warm_up
for kind, is_tensor_parallel in {KINDS}:
    config = RankConfig(model={MODEL}, parallel=ParallelConfig(kind))
    warm_up(plain(WarmupConfig(config, is_tensor_parallel)))
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(torch.version.cuda is None, reason="needs a build of torch for CUDA, as in `make test-versions`")
def test_a_build_for_cuda_neither_initializes_the_driver_nor_starts_a_thread(cuda_driver: Path, tmp_path: Path) -> None:
    calls, libraries = tmp_path / "calls", {"LD_LIBRARY_PATH": str(cuda_driver.parent)}
    env = {**os.environ, **libraries, "CUDA_DRIVER_CALLS": str(calls)}
    counts = [sys.executable, "-c", "import torch; torch._C._cuda_getDeviceCount()"]
    subprocess.run(counts, env=env, check=True)
    assert calls.exists(), "the double is the driver of this build"
    calls.unlink()
    warmed = subprocess.run([sys.executable, "-c", WARMS_UP], env=env, capture_output=True, text=True, check=False)
    assert (warmed.returncode, warmed.stdout.strip()) == (0, "0"), warmed.stderr
    assert not calls.exists(), "a process whose driver is initialized cannot be forked"
