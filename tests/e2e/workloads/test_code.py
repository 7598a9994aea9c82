"""A job brings its own code: every node has it, ranks run in it, and it is gone afterwards."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.jobs import Job
from tests.support.servers.regroup_server import Server, eventually

Spec = Callable[..., dict[str, Any]]

MINE = """
import json, os, pathlib, sys
import beside
def say(who):
    facts = {"who": who, "cwd": os.getcwd(), "path": sys.path[0], "pythonpath": os.environ["PYTHONPATH"]}
    pathlib.Path(os.environ["REPORT"], f"{os.getpid()}-{who}").write_text(json.dumps(facts))
say("zygote")
os.register_at_fork(after_in_child=lambda: say("child"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A module, and the module it needs."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "beside.py").write_text("")
    return folder


def test_ranks_run_in_the_code_that_the_job_brought(
    served: Server, spec: Spec, control: Job, project: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    report.mkdir()
    env = {"REPORT": str(report), "PYTHONPATH": "/own"}
    faults = [{"at": {"rank": 1, "step": 6, "phase": "forward"}, "do": "sigkill"}]
    job = served.run(spec("own-code", code={"working_dir": str(project)}, preload=["mine"], env=env, faults=faults))
    assert (job.state, job.generation) == ("SUCCEEDED", 2), (job.reason, job.message, job.error)
    assert job.digest.parameters == control.digest.parameters
    said = [json.loads(file.read_text()) for file in report.iterdir()]
    folders = {facts["cwd"] for facts in said}
    assert len(folders) == 2, "a folder for each node"
    assert {Path(folder).name for folder in folders} == {"code"}
    assert all(facts["path"] == facts["cwd"] for facts in said)
    assert all(facts["pythonpath"] == f"{facts['cwd']}:/own" for facts in said)
    assert {facts["who"] for facts in said} == {"zygote", "child"}
    eventually(lambda: not any(Path(folder).exists() for folder in folders), 30)


def test_code_that_no_node_can_read_ends_the_job_with_node_and_path(served: Server, spec: Spec, project: Path) -> None:
    (project / "beside.py").write_text("# of this test alone\n")
    archive = served.client.upload_working_dir(project)
    blob = served.state / "blobs" / "sha256" / archive.removeprefix("sha256:")
    blob.write_bytes(b"altered")
    try:
        job = served.run(spec("altered", code={"archive": archive}, preload=["mine"]))
    finally:
        blob.unlink()
    assert job.state == "FAILED"
    assert "is damaged in" in json.dumps(job.error) + job.message


def test_a_program_runs_in_the_folder_it_came_in(served: Server, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "programs").mkdir(parents=True)
    (folder / "programs" / "train.py").write_text(
        "import pathlib, sys\nimport beside, top\nprint(pathlib.Path('setting.txt').read_text(), sys.argv[1:])\n"
    )
    (folder / "programs" / "beside.py").touch()
    (folder / "top.py").touch()
    (folder / "setting.txt").write_text("lr=3")
    workload = {"kind": "script", "entrypoint": "programs/train.py", "args": ["--fast"]}
    code = {"working_dir": str(folder)}
    job = served.run({"name": "program", "workload": workload, "layout": {"dp": 3}, "code": code})
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    for rank in range(3):
        assert "".join(served.client.logs(job.id, rank=rank)) == "lr=3 ['--fast']\n"
