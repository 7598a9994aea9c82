"""Replicas on any layout, and the rank whose copy differs."""

from collections.abc import Iterator, Mapping

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from regroup.workers.contract.error_classes import classify
from regroup.workers.contract.messages import Join, Restore
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.contract.rank_error import ErrorClass
from regroup.workers.parallel.mesh import Alike, alike_in, holders_of
from regroup.workers.state.replica_check import ReplicaComparison, ReplicaOutlier, compared_by, error_of, find_outliers
from regroup.workers.torch_internals.groups import fake_groups

LAYOUT = {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "tp": 2}
RANK = 13  # stage 1, replica 0, shard 1 ... of sixteen ranks: 1·8 + 1·4 + 0·2 + 1


@pytest.fixture
def stage() -> Iterator[object]:
    """The axes below the pipeline's, as the model of one stage is spread over them. Nothing is sent."""
    with fake_groups(16, RANK):
        yield init_device_mesh("cpu", (2, 2, 2, 2), mesh_dim_names=tuple(LAYOUT))["dp_replicate", "dp_shard", "tp"]


def spread(mesh: object, *placements: object) -> DTensor:
    return DTensor.from_local(torch.ones(4, 4), mesh, placements, run_check=False)  # type: ignore[arg-type]


def test_holders_are_those_that_differ_in_no_split_axis(stage: object) -> None:
    alike = alike_in(LAYOUT, RANK, 16)
    everywhere, replica, tensor = None, frozenset({"dp_replicate"}), frozenset({"tp"})
    split = spread(stage, Replicate(), Shard(0), Shard(1))
    assert holders_of(split, alike, RANK, everywhere) == (9, 13)
    norm = spread(stage, Replicate(), Shard(0), Replicate())
    assert holders_of(norm, alike, RANK, everywhere) == (8, 9, 12, 13)
    assert holders_of(norm, alike, RANK, replica) == (9, 13)
    assert holders_of(norm, alike, RANK, tensor) == (12, 13)
    assert holders_of(spread(stage, Shard(0), Shard(0), Shard(1)), alike, RANK) == (RANK,)
    assert holders_of(torch.ones(3), alike, RANK) == tuple(range(8, 16))


def test_groups_separate_parameters_from_optimizer_state_and_from_what_may_differ(stage: object) -> None:
    compared = ReplicaComparison(RANK, alike_in(LAYOUT, RANK, 16), None)
    split = spread(stage, Replicate(), Shard(0), Shard(1))
    groups = compared.groups({
        "a.weight": split,
        "optim.a.weight.exp_avg": split,
        "optim.a.weight.step": torch.zeros(()),
        "buffer.mean": torch.zeros(3),
        "state:ema.x": torch.zeros(3),
        "alone": spread(stage, Shard(0), Shard(0), Shard(1)),
    })  # fmt: skip
    assert {name for name, group in groups.items() if group.may_differ} == {"buffer.mean", "state:ema.x"}
    assert set(groups) - {"buffer.mean", "state:ema.x"} == {"a.weight", "optim.a.weight.exp_avg", "optim.a.weight.step"}
    assert len({group.id for group in groups.values()}) == 5
    assert groups["a.weight"][1:] == (1, 2, False)
    assert groups["optim.a.weight.step"][1:] == (5, 8, False)


def test_ranks_that_hold_other_tensors_are_in_other_groups() -> None:
    compared = ReplicaComparison(0, Alike(0, 2), None)
    one = compared.groups({"w": torch.zeros(3), "optim.w.step": torch.zeros(())})
    other = compared.groups({"w": torch.zeros(3), "optim.v.step": torch.zeros(())})
    assert one["w"] == other["w"]
    assert one["optim.w.step"].id != other["optim.v.step"].id


def join(world_size: int, *, strict: bool = False, verifies: bool = True) -> Join:
    return Join(
        "job", 1, 0, world_size, 0, world_size, 0, 1, {"dp_replicate": world_size}, "cpu", "", 0, Restore("none"), "e",
        RankConfig(is_deterministic=strict, verify_replicas=verifies),
    )  # fmt: skip


def test_nondeterministic_devices_compare_only_results_of_one_collective() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert compared_by(join(2), cpu) == ReplicaComparison(0, Alike(0, 2), None)
    assert compared_by(join(2, strict=True), cuda) == ReplicaComparison(0, Alike(0, 2), None)
    assert compared_by(join(2), cuda) == ReplicaComparison(0, Alike(0, 2), frozenset({"dp_replicate"}))
    assert compared_by(join(1), cpu) is None
    unchecked = compared_by(join(2, verifies=False), cpu)
    assert unchecked is not None and all(group.may_differ for group in unchecked.groups({"w": torch.ones(1)}).values())


@pytest.mark.parametrize(
    ("held", "outlier"),
    [
        ({0: {"w": 1}, 1: {"w": 1}}, None),
        ({0: {"w": 1}, 1: {"w": 2}, 2: {"w": 1}}, ReplicaOutlier((1,), (0, 1, 2), ("w",))),
        ({0: {"w": 1}, 1: {"w": 2}}, ReplicaOutlier((0, 1), (0, 1), ("w",))),
        ({0: {"w": 1}, 1: {"w": 2}, 2: {"w": 3}}, ReplicaOutlier((0, 1, 2), (0, 1, 2), ("w",))),
        ({0: {"a": 1, "b": 7}, 1: {"a": 1, "b": 8}, 2: {"a": 1}, 3: {"b": 7}}, ReplicaOutlier((1,), (0, 1, 3), ("b",))),
        ({0: {"a": 1}, 1: {"b": 2}}, None),
    ],
)
def test_the_majority_is_right_where_there_is_one(
    held: Mapping[int, Mapping[str, int]], outlier: ReplicaOutlier | None
) -> None:
    assert find_outliers(held) == outlier


def test_the_error_names_ranks_and_tensors_or_the_missing_majority() -> None:
    error = error_of(7, ReplicaOutlier((1,), (0, 1, 2), ("x",)), [f"layer.{number}" for number in range(7)])
    assert str(error) == (
        "after step 7, rank 1 had values that differ from the other ranks in 7 tensors that must be equal on "
        "ranks 0, 1 and 2 (layer.0, layer.1, layer.2, layer.3, layer.4, …)"
    )
    assert error.details["outlier_ranks"] == [1] and error.details["is_certain"] and len(error.details["tensors"]) == 7
    pair = error_of(7, ReplicaOutlier((0, 1), (0, 1), ("x",)), ["w"])
    assert "no majority shows which rank is wrong" in str(pair)
    assert "1 tensor that must be equal on ranks 0 and 1" in str(pair)
    assert not pair.details["is_certain"]
    assert classify(pair) is ErrorClass.CORRUPTION
