"""Prepared records on a node: in a shared folder, or in a bucket."""

import uuid
from pathlib import Path

import pytest

from regroup.workers.agent.prepared_data import fetch, list_sources
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.data.prepare.preparation import summary
from regroup.workers.data.record_files import RecordFiles
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError
from tests.support.inputs.data_inputs import prepared, recipe, write
from tests.support.servers.s3 import ObjectStorage


def agent(datasets_uri: str) -> AgentConfig:
    return AgentConfig("job", "job", "id", "node-1", "127.0.0.1", "", "", datasets_uri)


def test_records_in_a_shared_folder_are_read_in_place(tmp_path: Path) -> None:
    out = tmp_path / "out"
    meta = prepared(recipe(write(tmp_path / "in", "jsonl"), "jsonl"), out)
    fetched = fetch(agent(str(out)), tmp_path, summary(meta))
    assert fetched["directory"] == str(out / meta["fingerprint"])
    file = out / meta["fingerprint"] / meta["splits"]["train"]["files"][0]["name"]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"\.bin has \d+ bytes; its manifest lists \d+ bytes\. Remove"):
        fetch(agent(str(out)), tmp_path, summary(meta))
    with pytest.raises(StorageError, match="node node-1 cannot read"):
        fetch(agent(str(tmp_path / "elsewhere")), tmp_path, summary(meta))


def test_records_are_read_from_and_written_to_a_bucket(
    tmp_path: Path, s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    root = f"{s3.uri}/{uuid.uuid4().hex}"
    for path in Path(write(tmp_path / "in", "jsonl")).iterdir():
        fsspec_storage.write_bytes(f"{root}/in/{path.name}", path.read_bytes())
    data = recipe(f"{root}/in", "jsonl")
    meta = prepared(data, f"{root}/out", code=str(tmp_path / "scratch"))
    local = prepared(recipe(str(tmp_path / "in"), "jsonl"), tmp_path / "out")
    assert {**meta, "sources": 0, "recipe": 0} == {**local, "sources": 0, "recipe": 0}
    fetched = fetch(agent(f"{root}/out"), tmp_path / "node", summary(meta))
    records = RecordFiles(Path(fetched["directory"]), "train")
    expected = RecordFiles(tmp_path / "out" / local["fingerprint"], "train")
    numbers = list(range(len(expected)))
    assert records[numbers]["tokens"].equal(expected[numbers]["tokens"])
    name = meta["splits"]["train"]["files"][0]["name"]
    fsspec_storage.write_bytes(f"{root}/out/{meta['fingerprint']}/{name}", b"damaged")
    with pytest.raises(StorageError, match="is damaged: its sha256 is"):
        fetch(agent(f"{root}/out"), tmp_path / "other", summary(meta))


def test_a_node_lists_the_sources_that_it_can_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "jsonl")
    listing = list_sources(agent(""), tmp_path, {}, recipe(source, "jsonl"))
    assert [Path(uri).name for uri in listing.files] == ["0.jsonl", "1.jsonl"]
    Path(source, "1.jsonl").write_text("{}")
    assert list_sources(agent(""), tmp_path, {}, recipe(source, "jsonl")).files != listing.files
