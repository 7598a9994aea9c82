"""Prepared records as a node finds them: in a folder that all see, or in a bucket."""

import uuid
from pathlib import Path

import pytest

from regroup.workers.agent.prepared_data import list_sources, localise
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.data.prepare.preparation import summary
from regroup.workers.data.record_files import RecordFiles
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError
from tests.support.inputs.data_inputs import prepared, recipe, write
from tests.support.servers.s3 import ObjectStorage


def agent(datasets_uri: str) -> AgentConfig:
    return AgentConfig("job", "job", "id", "node-1", "127.0.0.1", "", "", datasets_uri)


def test_a_folder_that_all_see_is_read_where_it_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    meta = prepared(recipe(write(tmp_path / "in", "jsonl"), "jsonl"), out)
    here = localise(agent(str(out)), tmp_path, summary(meta))
    assert here["directory"] == str(out / meta["fingerprint"])
    file = out / meta["fingerprint"] / meta["splits"]["train"]["files"][0]["name"]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"\.bin is of \d+ bytes, its manifest says \d+ bytes: remove"):
        localise(agent(str(out)), tmp_path, summary(meta))
    with pytest.raises(StorageError, match="node node-1 does not see"):
        localise(agent(str(tmp_path / "elsewhere")), tmp_path, summary(meta))


def test_a_bucket_is_read_and_written(tmp_path: Path, s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    root = f"{s3.uri}/{uuid.uuid4().hex}"
    for path in Path(write(tmp_path / "in", "jsonl")).iterdir():
        fsspec_storage.write_bytes(f"{root}/in/{path.name}", path.read_bytes())
    data = recipe(f"{root}/in", "jsonl")
    meta = prepared(data, f"{root}/out", code=str(tmp_path / "scratch"))
    alone = prepared(recipe(str(tmp_path / "in"), "jsonl"), tmp_path / "out")
    assert {**meta, "sources": 0, "recipe": 0} == {**alone, "sources": 0, "recipe": 0}
    here = localise(agent(f"{root}/out"), tmp_path / "node", summary(meta))
    records = RecordFiles(Path(here["directory"]), "train")
    there = RecordFiles(tmp_path / "out" / alone["fingerprint"], "train")
    numbers = list(range(len(there)))
    assert records[numbers]["tokens"].equal(there[numbers]["tokens"])
    name = meta["splits"]["train"]["files"][0]["name"]
    fsspec_storage.write_bytes(f"{root}/out/{meta['fingerprint']}/{name}", b"damaged")
    with pytest.raises(StorageError, match="is damaged: its sha256 is"):
        localise(agent(f"{root}/out"), tmp_path / "other", summary(meta))


def test_nodes_tell_what_they_see(tmp_path: Path) -> None:
    source = write(tmp_path / "in", "jsonl")
    seen = list_sources(agent(""), tmp_path, {}, recipe(source, "jsonl"))
    assert [Path(uri).name for uri in seen.files] == ["0.jsonl", "1.jsonl"]
    Path(source, "1.jsonl").write_text("{}")
    assert list_sources(agent(""), tmp_path, {}, recipe(source, "jsonl")).files != seen.files
