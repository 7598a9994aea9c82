"""A rank on a GPU chooses its device after the fork, and forms one group for state and for training."""

import datetime
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import distributed as dist

from regroup.workers.contract.messages import Join, Restore
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.rank import main

ON_CPU = Join(
    "job", 3, 1, 2, 1, 2, 0, 1, {"dp_shard": 2}, "cpu", "10.0.0.1", 4000, Restore("none"), "m:f", RankConfig()
)
ON_GPU = replace(ON_CPU, device="cuda")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of the calls into torch, which has no device here."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: made.update(device=device))
    monkeypatch.setattr(dist, "TCPStore", lambda host, port, **options: made.update(store=(host, port), **options))
    monkeypatch.setattr(dist, "PrefixStore", lambda prefix, store: prefix)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: made.update(backend=backend, **options))
    return made


def test_the_device_is_the_one_that_the_agent_assigned(calls: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_DEVICE_INDEX", "5")
    assert main._prepare(ON_CPU) == torch.device("cpu") and calls == {}
    assert main._prepare(ON_GPU) == torch.device("cuda", 5) == calls["device"]


def test_a_gpu_trains_over_nccl_and_saves_state_over_gloo(
    calls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGROUP_COLLECTIVE_TIMEOUT_S", "40")
    device = torch.device("cuda", 5)
    main._form_process_group(ON_GPU, device)
    assert (calls["backend"], calls["device_id"]) == ("cpu:gloo,cuda:nccl", device)
    assert (calls["rank"], calls["world_size"], calls["store"]) == (1, 2, "generation-3")
    assert calls["timeout"] == datetime.timedelta(seconds=40) and not calls["is_master"]
    main._form_process_group(ON_CPU, torch.device("cpu"))
    assert (calls["backend"], calls["device_id"]) == ("gloo", None)
