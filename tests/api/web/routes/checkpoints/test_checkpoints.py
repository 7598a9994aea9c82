"""The files of checkpoints, and their verification: with the API, the client and the command line."""

import asyncio
import json
import shutil
from typing import Any

import pytest

from regroup.api.cli.main import main
from tests.support.inputs.stored_checkpoints import FILES, folder_of, write_checkpoint


async def saved(live: Any, step: int = 4) -> tuple[str, dict[str, Any]]:
    """Return a job with a checkpoint, and the data of the checkpoint."""
    job = await live.submit()
    await live.run(job["id"])
    data = write_checkpoint(job["storage_uri"], step)
    await live.report(job["id"], ("checkpoint", 1, data))
    return job["id"], data


async def verify(live: Any, job: str, **body: Any) -> Any:
    answer = await live.http.post(f"/v1/jobs/{job}/checkpoints/4/verify", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_files_of_a_checkpoint_are_listed_with_commands_that_work(live: Any, tmp_path: Any) -> None:
    job, data = await saved(live)
    answer = await live.http.get(f"/v1/jobs/{job}/checkpoints/4/files")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert {each["name"]: each["size_bytes"] for each in found["files"]} == {k: len(v) for k, v in FILES.items()}
    assert (found["size_bytes"], found["checkpoint"]["uri"]) == (data["size_bytes"], data["uri"])
    copying = await asyncio.create_subprocess_shell(found["copy_command"], cwd=tmp_path)
    assert await copying.wait() == 0
    assert (tmp_path / "step-4" / "__0_0.distcp").read_bytes() == FILES["__0_0.distcp"]
    assert found["export_command"] == f"regroup export {job}@4 gpt-4.safetensors"
    compile(found["load_code"], "load_code", "exec")


async def test_files_of_an_older_checkpoint_are_verified_and_copied_too(live: Any, tmp_path: Any) -> None:
    job, data = await saved(live)
    folder = folder_of(data["uri"])
    older = folder.with_name("step-2.gen-1")
    older.mkdir()
    (folder / "__0_0.distcp").rename(older / "__0_0.distcp")
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["files"]:
        entry["name"] = {"__0_0.distcp": "../step-2.gen-1/__0_0.distcp"}.get(entry["name"], entry["name"])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert (await verify(live, job))["faults"] == []
    found = (await live.http.get(f"/v1/jobs/{job}/checkpoints/4/files")).json()
    assert "../step-2.gen-1/__0_0.distcp" in [each["name"] for each in found["files"]]
    copying = await asyncio.create_subprocess_shell(found["copy_command"], cwd=tmp_path)
    assert await copying.wait() == 0
    copy = tmp_path / "step-4" / folder.name
    assert (copy / "../step-2.gen-1/__0_0.distcp").read_bytes() == FILES["__0_0.distcp"]
    assert f'FileSystemReader("step-4/{folder.name}")' in found["load_code"]
    (older / "__0_0.distcp").write_bytes(b"short")
    (fault,) = (await verify(live, job, contents=False))["faults"]
    assert fault["name"] == "../step-2.gen-1/__0_0.distcp" and "5 bytes" in fault["problem"]
    (older / "__0_0.distcp").unlink()
    (fault,) = (await verify(live, job))["faults"]
    assert (fault["name"], fault["problem"]) == ("../step-2.gen-1/__0_0.distcp", "is missing")


async def test_an_intact_checkpoint_is_verified(live: Any) -> None:
    job, data = await saved(live)
    found = await verify(live, job)
    assert (found["faults"], found["is_complete"], found["position"]) == ([], True, "")
    assert (found["verified_files"], found["verified_bytes"]) == (len(FILES), data["size_bytes"])
    sizes = await verify(live, job, contents=False)
    assert (sizes["faults"], sizes["verified_bytes"], sizes["is_complete"]) == ([], 0, True)


async def test_a_damaged_checkpoint_names_each_file_and_its_difference(live: Any, capsys: Any) -> None:
    job, data = await saved(live)
    folder = folder_of(data["uri"])
    content = bytearray(FILES["__0_0.distcp"])
    content[700] ^= 1
    (folder / "__0_0.distcp").write_bytes(content)
    (folder / "__1_0.distcp").write_bytes(b"\x07" * 4000)
    (folder / "facts-0.json").unlink()
    faults = {each["name"]: each["problem"] for each in (await verify(live, job))["faults"]}
    assert set(faults) == {"__0_0.distcp", "__1_0.distcp", "facts-0.json"}
    assert "its content changed" in faults["__0_0.distcp"] and "4,000 bytes" in faults["__1_0.distcp"]
    assert faults["facts-0.json"] == "is missing"
    named = [each["name"] for each in (await verify(live, job, contents=False))["faults"]]
    assert named == ["__1_0.distcp", "facts-0.json"], "sizes alone do not show a flipped bit"
    found = await live.client(lambda client: client.verify_checkpoint(job, 4))
    assert {each.name for each in found.faults} == set(faults)
    assert await typed(live, "verify", f"{job}@4") == 1
    assert "__0_0.distcp has the checksum" in capsys.readouterr().out


async def test_a_part_continues_at_its_position_on_any_server(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regroup.service.operations.checkpoints.verification.PART_S", 0.0)
    monkeypatch.setattr("regroup.service.operations.checkpoints.verification._CHUNK_BYTES", 4096)
    job, data = await saved(live)
    (folder_of(data["uri"]) / ".metadata").write_bytes(b"metadatA")
    position, parts, faults = "", list[Any](), list[str]()
    while not parts or position:
        parts.append(await verify(live, job, position=position))
        position = parts[-1]["position"]
        faults += [each["name"] for each in parts[-1]["faults"]]
    assert len(parts) > len(FILES) and faults == [".metadata"]
    progress = [each["verified_bytes"] for each in parts]
    assert progress == sorted(progress) and progress[0] == 4096 and progress[-1] == data["size_bytes"]


async def test_what_cannot_be_verified_is_refused_with_the_reason(live: Any) -> None:
    job, data = await saved(live)
    url = f"/v1/jobs/{job}/checkpoints"
    assert (await live.http.post(f"{url}/5/verify")).status_code == 404
    assert (await live.http.get(f"{url}/5/files")).status_code == 404
    for position in ("1", "a.b.c", "1.2.3.4", "9" * 61):
        answer = await live.http.post(f"{url}/4/verify", json={"position": position})
        assert answer.status_code == 422, position
    manifest = folder_of(data["uri"]) / "manifest.json"
    for damaged in ("{", "[]", '{"files": [{"name": "../../etc/passwd", "size_bytes": 1, "crc32": 1}]}'):
        manifest.write_text(damaged)
        answer = await live.http.post(f"{url}/4/verify")
        assert answer.status_code == 409 and "damaged" in answer.text
    shutil.rmtree(folder_of(data["uri"]))
    answer = await live.http.post(f"{url}/4/verify")
    assert answer.status_code == 409 and "was removed" in answer.text


async def test_the_commands_verify_and_pin(live: Any, capsys: Any) -> None:
    job, _ = await saved(live)
    assert await typed(live, "verify", job) == 0
    assert "intact: contents of 4 files" in capsys.readouterr().out
    assert await typed(live, "verify", job, "--sizes") == 0
    assert "intact: sizes of 4 files" in capsys.readouterr().out
    assert await typed(live, "pin", f"{job}@4") == 0
    assert (await live.http.get(f"/v1/jobs/{job}/checkpoints")).json()["checkpoints"][0]["pinned"]
    assert await typed(live, "unpin", f"{job}@4") == 0
    assert not (await live.http.get(f"/v1/jobs/{job}/checkpoints")).json()["checkpoints"][0]["pinned"]
    assert await typed(live, "pin", job) == 2
    assert await typed(live, "ledger", job) == 0
    assert "exact: each sample" in capsys.readouterr().out


async def typed(live: Any, *words: str) -> int:
    def call() -> int:
        try:
            main([*words, "--server", live.url])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return await asyncio.to_thread(call)
