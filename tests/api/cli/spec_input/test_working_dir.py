"""`--working-dir` on the command line, against the real app."""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from regroup.api.cli.main import main
from regroup.api.cli.spec_input import working_dir as directory
from regroup.api.cli.spec_input.working_dir import for_program, with_working_dir
from regroup.service.domain.errors import SpecError
from regroup.service.local.data_marker import mark_data_folders

Cli = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def cli(live: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """A function that runs one command and returns its exit code, output and errors."""
    monkeypatch.setenv("REGROUP_SERVER", live.url)

    def running(arguments: tuple[object, ...]) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return (int(ended.value.code or 0), *capsys.readouterr())

    async def run(*arguments: object) -> tuple[int, str, str]:
        return await asyncio.to_thread(running, arguments)

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    return folder


@pytest.fixture
def spec(make_spec: Callable[..., dict[str, Any]], project: Path) -> Callable[..., Path]:
    """A function that writes a spec file into the project."""

    def written(**fields: Any) -> Path:
        path = project / "spec.yaml"
        path.write_text(yaml.safe_dump(make_spec(**fields)))
        return path

    return written


async def test_submit_uploads_the_folder(
    cli: Cli, spec: Callable[..., Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    done, out, err = await cli("submit", spec(), "--working-dir", ".", "--json")
    address = json.loads(out)["spec"]["code"]["archive"]
    assert (done, address[:7], err) == (0, "sha256:", ""), "a short upload prints no progress"
    monkeypatch.chdir(project.parent)
    done, out, _ = await cli("submit", spec(name="own", code={"working_dir": "."}), "--json")
    assert done == 0, "the folder in a spec file is relative to the file"
    (project / "train.py").write_text("print('hi')\n")
    done, out, _ = await cli(
        "submit", spec(name="other", code={"archive": address}), "--working-dir", project, "--json"
    )
    assert done == 0 and json.loads(out)["spec"]["code"]["archive"] != address


async def test_run_uploads_the_folder_of_a_program_or_a_spec(
    live: Any, cli: Cli, spec: Callable[..., Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ran(*arguments: object) -> dict[str, Any]:
        """Run a command, cancel its job so that the command ends, and return the job's spec."""
        running = asyncio.create_task(cli("run", "--json", *arguments))
        async with asyncio.timeout(20):
            while not (jobs := (await live.http.get("/v1/jobs?state=QUEUED")).json()["jobs"]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        job = (await live.http.post(f"/v1/jobs/{jobs[0]['id']}/cancel")).json()
        await running
        return job["spec"]

    monkeypatch.chdir(project)
    sent = await ran("--working-dir", ".", "train.py", "--lr", "3")
    assert sent["code"]["archive"].startswith("sha256:")
    workload = sent["workload"]
    assert (workload["entrypoint"], workload["cwd"], workload["args"]) == ("train.py", None, ["--lr", "3"])
    (project / "train.py").write_text("print('hi')\n")
    assert (await ran(spec(), "--working-dir", "."))["code"]["archive"] != sent["code"]["archive"]


async def test_an_invalid_folder_is_rejected_before_submission(
    cli: Cli, spec: Callable[..., Path], project: Path
) -> None:
    (project / "out").symlink_to("/etc")
    done, out, err = await cli("submit", spec(), "--working-dir", project)
    assert (done, out) == (3, "") and "out is a symbolic link to /etc" in err
    assert (await cli("get", "gpt"))[0] == 4


async def test_storage_in_the_folder_is_left_out_and_named(
    live: Any, cli: Cli, spec: Callable[..., Path], project: Path
) -> None:
    state, own = project / "state", project / "own"
    mark_data_folders(state)
    own.mkdir()
    addresses: list[str] = []
    for number in range(2):  # the second archive does not contain what the first job left
        (state / f"archive-{number}").write_bytes(bytes(50_000))
        (own / f"checkpoint-{number}").write_bytes(bytes(50_000))
        done, out, err = await cli(
            "submit", spec(name=f"n{number}", storage_uri=own.as_uri()), "--working-dir", project, "--json"
        )
        (project / "spec.yaml").unlink()
        assert done == 0 and err.splitlines()[0].startswith("code: left out own, state: regroup's own data")
        addresses.append(json.loads(out)["spec"]["code"]["archive"])
    folder = Path(live.services.settings.blob_uri.removeprefix("file://")) / "sha256"
    assert all((folder / each.removeprefix("sha256:")).stat().st_size < 20_000 for each in addresses)


async def test_validate_packs_the_folder_but_uploads_nothing(
    live: Any, cli: Cli, spec: Callable[..., Path], project: Path
) -> None:
    done, out, _ = await cli("validate", spec(code={"working_dir": "."}), "--json")
    assert done == 0 and json.loads(out)["spec"]["code"]["archive"].startswith("sha256:")
    assert "blobs" not in os.listdir(live.services.settings.state_dir)
    assert (await cli("validate", spec(code={"working_dir": "nowhere"})))[0] == 3


async def test_a_long_upload_shows_its_progress(
    cli: Cli, spec: Callable[..., Path], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_QUIET_S", 0.0)
    monkeypatch.setattr(directory, "_LINE_S", 0.0)
    (project / "weights.bin").write_bytes(random.Random(0).randbytes(6 * 2**20))
    done, _, err = await cli("submit", spec(), "--working-dir", project)
    assert done == 0 and err.splitlines()[:2] == ["code: 4.0 MiB of 6.0 MiB", "code: 6.0 MiB of 6.0 MiB"]


def test_the_path_of_a_program_is_relative_to_the_uploaded_folder(tmp_path: Path) -> None:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    (tmp_path / "project" / "sub" / "train.py").touch()
    cwd = tmp_path / "project" / "sub"

    def relocated(working_dir: str | None, **workload: Any) -> dict[str, Any]:
        folder = None if working_dir is None else Path(working_dir)
        return for_program({"workload": {"kind": "script", "cwd": str(cwd), **workload}}, folder, cwd)

    entrypoint = str(cwd / "train.py")
    assert relocated(None, entrypoint=entrypoint) == {
        "workload": {"kind": "script", "cwd": str(cwd), "entrypoint": entrypoint}
    }
    assert relocated(".", entrypoint=entrypoint)["workload"] == {"kind": "script", "entrypoint": "train.py"}
    assert relocated("..", entrypoint=entrypoint) == {
        "workload": {"kind": "script", "entrypoint": "sub/train.py"}, "code": {"working_dir": ".."},
    }  # fmt: skip
    assert relocated(".", module="package.train")["workload"] == {"kind": "script", "module": "package.train"}
    with pytest.raises(SpecError, match=r"python.*is not in this folder"):
        relocated(".", entrypoint="/usr/bin/python")


def test_a_spec_without_a_folder_is_unchanged() -> None:
    assert with_working_dir({"name": "x"}, None, Path()) == {"name": "x"}
    assert with_working_dir({"code": {"archive": "a"}}, None, Path("/b")) == {"code": {"archive": "a"}}
