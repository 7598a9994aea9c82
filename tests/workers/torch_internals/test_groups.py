"""Process groups through torch's private names."""

import os
import subprocess
import sys

import pytest
import torch
from torch import distributed as dist

from regroup.workers.torch_internals import groups
from tests.support.machines.one_rank import one_rank


def test_fake_groups_have_ranks_that_send_nothing() -> None:
    with groups.fake_groups(3, 1):
        assert (dist.get_world_size(), dist.get_rank(), dist.get_backend()) == (3, 1, "fake")
        dist.all_reduce(torch.ones(2))
    assert not dist.is_initialized()


def test_they_end_with_an_error_in_the_block() -> None:
    with pytest.raises(ZeroDivisionError), groups.fake_groups(2):
        raise ZeroDivisionError
    assert not dist.is_initialized()


def test_the_first_rank_of_each_group_of_this_rank_is_known() -> None:
    with groups.fake_groups(4, 2):
        dist.new_group([2, 3])
        dist.new_group([0, 1])
        assert sorted(groups.first_ranks().values()) == [0, 2]


def test_the_flight_recorder_has_the_collectives_of_gloo() -> None:
    with one_rank():
        before = len(groups.recorded_collectives())
        dist.all_reduce(torch.ones(7))
        entries = groups.recorded_collectives()
    assert len(entries) > before
    newest = max(entries, key=lambda entry: entry["time_created_ns"])
    assert str(newest["profiling_name"]).startswith("gloo:") and newest["input_sizes"] == [[7]]
    expected = {"process_group", "collective_seq_id", "input_dtypes", "state", "retired", "is_p2p"}
    assert expected <= newest.keys()


_LIMITED = """
import torch
from torch import distributed as dist
from regroup.workers.torch_internals import groups
groups.limit_recorder(4)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(10):
    dist.all_reduce(torch.ones(1))
print(len(groups.recorded_collectives()))
dist.destroy_process_group()  # at exit, threads of a group can abort the process
"""


@pytest.mark.parametrize(("own", "expected"), [({}, "4"), ({"TORCH_FR_BUFFER_SIZE": "6"}, "6")])
def test_the_recorder_can_be_limited_unless_the_user_has_done_it(own: dict[str, str], expected: str) -> None:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", **own}
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split()[-1] == expected


def test_groups_are_retained_until_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    retained: list[object] = []
    monkeypatch.setattr(groups, "_retained", retained)
    with groups.fake_groups(2):
        group = dist.group.WORLD
        groups.retain_all()
        groups.retain_all()
    assert group is not None and group in retained
