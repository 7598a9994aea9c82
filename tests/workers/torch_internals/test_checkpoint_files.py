"""Places in torch's checkpoint files, and the readers of `torch.load`."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan

from regroup.workers.torch_internals.checkpoint_files import READERS, FilePlace, file_prefix, from_storage, to_storage


def test_a_place_is_what_the_metadata_of_torch_contains() -> None:
    place = FilePlace("__3_0.distcp", 128, 64)
    stored = to_storage(place)
    assert (stored.relative_path, stored.offset, stored.length) == ("__3_0.distcp", 128, 64)
    assert from_storage(stored) == place


def test_an_empty_plan_with_a_prefix_is_accepted(tmp_path: Path) -> None:
    plan = SavePlan([], storage_data=file_prefix(3))
    written = FileSystemWriter(tmp_path).write_data(plan, DefaultSavePlanner()).value()
    assert written == []


@pytest.mark.parametrize("is_new", [True, False])
def test_each_format_of_torch_load_goes_through_a_known_reader(
    is_new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"a": 1}, tmp_path / "state.pt", _use_new_zipfile_serialization=is_new)
    read: list[str] = []
    for owner, name in READERS:
        load = getattr(owner, name)

        def counted(*args: object, load: object = load, name: str = name, **options: object) -> object:
            read.append(name)
            return load(*args, **options)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, counted)
    assert torch.load(tmp_path / "state.pt") == {"a": 1}
    assert read == ["_load" if is_new else "_legacy_load"]
