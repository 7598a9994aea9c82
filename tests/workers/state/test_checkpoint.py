"""A checkpoint written from memory without a process group loads with plain DCP, on any layout."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import checkpoint as dcp

from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.state.export import export, main
from regroup.workers.storage.fsspec_storage import StorageError
from tests.support.inputs.rank_configs import changed
from tests.workers.shard_writer import FINISH, SAVE


def save(agent: Any, memory: str, world_size: int, step: int, directory: Path, base: Path | None = None) -> Path:
    """Save a pinned snapshot as the agents of two nodes and the supervisor do."""
    directory.mkdir()
    of_base = {} if base is None else {"base": str(base)}
    state = {"source": "memory", "step": step, "generation": 1}
    nodes = [ranks for ranks in (list(range(world_size // 2)), list(range(world_size // 2, world_size))) if ranks]
    parts = [
        agent.task(
            SAVE,
            {"directory": str(directory), "shards": [{"rank": rank} for rank in ranks], "differing": [], **of_base},
            memory=memory,
            ranks=ranks,
            restore=state,
        )
        for ranks in nodes
    ]
    agent.task(FINISH, {"directory": str(directory), "step": step}, parts=parts)
    assert len({part["samples_digest"] for part in parts}) == 1
    return directory


@pytest.mark.parametrize(("kind", "before", "after"), [("fsdp", 4, 2), ("fsdp", 2, 3), ("ddp", 2, 1)])
def test_a_run_continues_from_a_checkpoint_on_another_layout(
    agent: Any, config: RankConfig, tmp_path: Path, kind: str, before: int, after: int
) -> None:
    config = changed(config, training={"precision": "fp64"})
    config = changed(config, parallel={"data_parallel": kind})
    memory = f"checkpoint-{kind}-{before}-{after}"
    whole = agent.run(config, before, memory)
    directory = save(agent, memory, before, 3, tmp_path / "checkpoint")
    config = changed(config, parallel={"data_parallel": "fsdp"})
    resumed = agent.run(
        config,
        after,
        f"{memory}-resumed",
        generation=2,
        checkpoint_dir=str(directory),
        restore={"source": "checkpoint", "step": 3, "generation": 1},
    )
    assert resumed.codes == [0] * after
    assert [row["step"] for row in resumed.rows] == [4]
    assert resumed.losses == pytest.approx(whole.losses[3:], rel=1e-11)
    assert resumed.result["samples"] == whole.result["samples"]


def test_on_the_same_layout_a_run_continues_bitwise(agent: Any, config: RankConfig, tmp_path: Path) -> None:
    whole = agent.run(config, 2, "checkpoint-same")
    directory = save(agent, "checkpoint-same", 2, 3, tmp_path / "checkpoint")
    resumed = agent.run(
        config,
        2,
        "checkpoint-same-resumed",
        generation=2,
        checkpoint_dir=str(directory),
        restore={"source": "checkpoint", "step": 3, "generation": 1},
    )
    assert resumed.result == whole.result


def test_plain_dcp_loads_it_and_replicas_are_written_once(agent: Any, config: RankConfig, tmp_path: Path) -> None:
    config = changed(config, parallel={"data_parallel": "ddp"})
    agent.run(config, 2, "checkpoint-dcp")
    directory = save(agent, "checkpoint-dcp", 2, 4, tmp_path / "checkpoint")
    metadata = dcp.FileSystemReader(directory).read_metadata()
    assert all(len(tensor.chunks) == 1 for tensor in metadata.state_dict_metadata.values())  # pyright: ignore[reportAttributeAccessIssue]
    names = {"embed.weight", "layers.0.attention.query.weight", "optim.head.weight.exp_avg", "optim.head.weight.step"}
    assert names <= set(metadata.state_dict_metadata)
    state = {"norm.weight": torch.zeros(24), "optim.norm.weight.step": torch.zeros(())}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(state, storage_reader=dcp.FileSystemReader(directory), no_dist=True)
    assert (state["norm.weight"] != 0).all()
    assert state["optim.norm.weight.step"] == 4
    sizes = {path.name: path.stat().st_size for path in directory.glob("*.distcp")}
    assert set(sizes) == {"__0_0.distcp"}, "small tensors that all ranks have come from one file"


def test_a_torn_or_foreign_buffer_is_not_saved(agent: Any, config: RankConfig, tmp_path: Path) -> None:
    agent.run(config, 2, "checkpoint-foreign")
    state = {"source": "memory", "step": 4, "generation": 1}
    args = {"directory": str(tmp_path), "shards": [{"rank": 1}], "differing": []}
    with pytest.raises(RuntimeError, match="buffer of rank 1 holds no complete snapshot"):
        agent.task(SAVE, args, memory="checkpoint-foreign", ranks=[0], restore=state)


def test_metadata_of_half_the_shards_is_refused(agent: Any, config: RankConfig, tmp_path: Path) -> None:
    agent.run(config, 2, "checkpoint-half")
    state = {"source": "memory", "step": 4, "generation": 1}
    args = {"directory": str(tmp_path), "shards": [{"rank": 0}], "differing": []}
    part = agent.task(SAVE, args, memory="checkpoint-half", ranks=[0], restore=state)
    with pytest.raises(RuntimeError, match=r"the shards cover \d+ of \d+ values"):
        agent.task(FINISH, {"directory": str(tmp_path)}, parts=[part])
    assert not (tmp_path / ".metadata").exists()


def test_parameters_are_exported_as_safetensors(
    agent: Any, config: RankConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = agent.run(config, 2, "checkpoint-export")
    directory = save(agent, "checkpoint-export", 2, 4, tmp_path / "checkpoint")
    count = export(str(directory), tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    assert count == len(tensors)
    assert sum(tensor.numel() for tensor in tensors.values()) == run.result["parameter_count"]
    assert not any(name.startswith("optim.") for name in tensors)
    damaged = directory / "__1_0.distcp"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    monkeypatch.setattr("sys.argv", ["export", str(directory), str(tmp_path / "again.safetensors")])
    assert main() == 1
    assert "__1_0.distcp is damaged" in capsys.readouterr().err
    (directory / "manifest.json").unlink()
    assert main() == 1
    assert "not a finished checkpoint" in capsys.readouterr().err


def test_plain_dcp_loads_an_unchanged_state_from_the_older_checkpoint(
    agent: Any, config: RankConfig, tmp_path: Path
) -> None:
    agent.run(config, 2, "checkpoint-unchanged")
    first = save(agent, "checkpoint-unchanged", 2, 4, tmp_path / "step-4.gen-1")
    second = save(agent, "checkpoint-unchanged", 2, 4, tmp_path / "step-8.gen-1", base=first)
    sizes = [sum(path.stat().st_size for path in folder.glob("*.distcp")) for folder in (first, second)]
    assert sizes[0] > 0 and sizes[1] == 0, "nothing has changed"
    state = {"norm.weight": torch.zeros(24)}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(state, storage_reader=dcp.FileSystemReader(second), no_dist=True)
    assert (state["norm.weight"] != 0).all()
    assert export(str(second), tmp_path / "model.safetensors") > 0
    shutil.rmtree(first)
    with pytest.raises(StorageError, match=r"step-4\.gen-1/__\d_0\.distcp is named in the manifest but missing"):
        export(str(second), tmp_path / "again.safetensors")
