"""Files that are composed of planned containers and snapshots load with plain torch."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint as dcp

from regroup.workers.agent.checkpoints.node_write import NodeWrite
from regroup.workers.contract.checkpoint_manifest import Pieces
from regroup.workers.contract.planned_shards import unpack_plan
from regroup.workers.state.buffer_layout import BufferLayout
from regroup.workers.state.checkpoint import write_metadata
from regroup.workers.state.checkpoint_plan import plan_shards
from regroup.workers.state.shard_buffer import ShardBuffer
from regroup.workers.state.snapshot import plan_of, tensor_in
from regroup.workers.state.state_error import StateError
from regroup.workers.storage import fsspec_storage

TENSORS = {
    "scalar": torch.tensor(7.0),
    "empty": torch.zeros((0, 3)),
    "bool": torch.tensor([True, False, True]),
    "bf16": torch.arange(12, dtype=torch.bfloat16).reshape(3, 4),
    "int64": torch.arange(1000, dtype=torch.int64),
    "large": torch.arange(3_000_000, dtype=torch.float32).reshape(3000, 1000),
    "twin": -torch.arange(3_000_000, dtype=torch.float32).reshape(3000, 1000),
}


def snapshot(tensors: dict[str, torch.Tensor], *, rank: int = 0, copies: dict[str, int] | None = None) -> int:
    """Return a memory file with a complete snapshot. Rank r has copy r of the tensors in `copies`."""
    fd = os.memfd_create("test")
    buffer, plan = ShardBuffer(os.dup(fd)), plan_of(tensors)
    if copies:
        entries = plan.entries
        plan = BufferLayout(
            [replace(each, copy=rank, copies=copies[each.name]) if each.name in copies else each for each in entries]
        )
    place = {"generation": 1, "step": 3, "rank": rank, "world_size": 1, "layout_hash": "h"}
    buffer.begin(plan, {"samples_digest": "d", "position": 12}, **place)
    for entry in plan.entries:
        tensor_in(buffer, entry).copy_(tensors[entry.name])
    buffer.commit()
    return fd


def save(fd: int, folder: Path) -> tuple[Pieces, dict[str, Any]]:
    containers, plan = os.memfd_create("containers"), os.memfd_create("plan")
    result = plan_shards({"shards": [{"rank": 0}], "differing": []}, [fd, containers, plan])
    planned = unpack_plan(fsspec_storage.read_all(plan, 1 << 30), 1)
    pieces = NodeWrite(str(folder), planned, [0], [fd], containers, Pieces({}, ()), "").run()
    packed = os.memfd_create("pieces")
    os.write(packed, pieces.packed())
    write_metadata({"directory": str(folder)}, [packed])
    return pieces, result


def test_plain_torch_loads_what_an_agent_composed(tmp_path: Path) -> None:
    pieces, result = save(snapshot(TENSORS), tmp_path)
    assert result == {"samples_digest": "d", "alike": [{}]}
    loaded = {name: torch.full_like(tensor, 1) for name, tensor in TENSORS.items()}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path), no_dist=True)
    for name, tensor in TENSORS.items():
        assert loaded[name].equal(tensor), name
    content = (tmp_path / "__0_0.distcp").read_bytes()
    for piece in pieces.pieces:
        values = content[piece.data_start : piece.data_start + piece.nbytes]
        assert values == TENSORS[piece.name].contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    assert json.loads((tmp_path / "facts-0.json").read_text()) == {
        "samples_digest": "d", "position": 12, "world_size": 1, "layout_hash": "h",
    }  # fmt: skip


def test_tensors_of_the_same_form_share_a_container_and_data_takes_no_memory(tmp_path: Path) -> None:
    fd, containers, plan = snapshot(TENSORS), os.memfd_create("containers"), os.memfd_create("plan")
    plan_shards({"shards": [{"rank": 0}], "differing": []}, [fd, containers, plan])
    planned = unpack_plan(fsspec_storage.read_all(plan, 1 << 30), 1)
    assert len(planned.containers) == len(TENSORS) - 1
    assert os.fstat(containers).st_size < 20_000


def test_what_all_ranks_have_is_in_one_place_of_few_files() -> None:
    """Check the order of the files: a node reads whole chunks of each file that has a tensor which it needs."""
    whole = {f"whole.{number}": torch.zeros(300_000) for number in range(8)}
    scalars = {f"step.{number}": torch.tensor(1.0) for number in range(40)}
    parts = {f"part.{number}": torch.zeros(100) for number in range(8)}
    named = [*zip(scalars, parts, whole, strict=False), *zip([*scalars][8:], strict=True)]
    tensors = {name: {**whole, **scalars, **parts}[name] for names in named for name in names}
    written: dict[int, list[str]] = {}
    for rank in range(2):
        memory = [os.memfd_create("containers"), os.memfd_create("plan")]
        fd = snapshot(tensors, rank=rank, copies=dict.fromkeys([*whole, *scalars], 2))
        plan_shards({"shards": [{"rank": rank}], "differing": []}, [fd, *memory])
        (planned,) = unpack_plan(fsspec_storage.read_all(memory[1], 1 << 30), 1).files
        written[rank] = [piece.name for piece in planned.pieces]
    for rank, names in written.items():
        assert [name for name in names if name in parts] == names[-len(parts) :] == list(parts), rank
    assert {name for name in written[0] if name in scalars} == set(scalars), "small ones come from one file"
    shared = [{name for name in names if name in whole} for names in written.values()]
    assert all(shared) and sorted([*shared[0], *shared[1]]) == sorted(whole), "both ranks write large ones"


@pytest.mark.parametrize("rank", [15, 16, 63])
def test_few_of_many_equal_ranks_write(rank: int) -> None:
    tensors = {f"whole.{number}": torch.zeros(100_000) for number in range(100)}
    memory = [os.memfd_create("containers"), os.memfd_create("plan")]
    fd = snapshot(tensors, rank=rank, copies=dict.fromkeys(tensors, 64))
    plan_shards({"shards": [{"rank": rank}], "differing": []}, [fd, *memory])
    (planned,) = unpack_plan(fsspec_storage.read_all(memory[1], 1 << 30), 1).files
    assert bool(planned.pieces) == (rank == 15)


def test_a_torn_snapshot_is_refused() -> None:
    fd = snapshot(TENSORS)
    os.pwrite(fd, b"x", 5000)  # the index
    memory = [os.memfd_create("containers"), os.memfd_create("plan")]
    with pytest.raises(StateError, match="holds no complete snapshot"):
        plan_shards({"shards": [{"rank": 0}], "differing": []}, [fd, *memory])
    with pytest.raises(StateError, match="buffer of rank 1"):
        plan_shards({"shards": [{"rank": 1}], "differing": []}, [snapshot(TENSORS), *memory])
