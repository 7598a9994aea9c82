"""Places in torch's checkpoint files, and the readers of `torch.load`."""

from pathlib import Path

import pytest
import torch

from regroup.workers.torch_internals.checkpoint_files import READERS, FilePlace, to_storage, write_without_data


def test_a_place_is_what_the_metadata_of_torch_contains() -> None:
    place = FilePlace("__3_0.distcp", 128, 64)
    stored = to_storage(place)
    assert (stored.relative_path, stored.offset, stored.length) == ("__3_0.distcp", 128, 64)


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (700, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_file_without_data_has_the_size_of_the_file_with_data(
    tmp_path: Path, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    with (tmp_path / "whole.pt").open("wb") as whole, (tmp_path / "empty.pt").open("wb") as empty:
        torch.save(tensor, whole)
        write_without_data(tensor, empty)
    assert (tmp_path / "empty.pt").stat().st_size == (tmp_path / "whole.pt").stat().st_size
    assert torch.load(tmp_path / "empty.pt").equal(torch.zeros(shape, dtype=dtype))


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
