"""A job with its own code: every node has it, ranks run in it, and it is removed afterwards."""

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
import sibling
def report(who):
    facts = {"who": who, "cwd": os.getcwd(), "path": sys.path[0], "pythonpath": os.environ["PYTHONPATH"]}
    pathlib.Path(os.environ["REPORT"], f"{os.getpid()}-{who}").write_text(json.dumps(facts))
report("zygote")
os.register_at_fork(after_in_child=lambda: report("child"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a module, and a module that it imports."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "sibling.py").write_text("")
    return folder


def test_ranks_run_in_the_code_of_the_job(
    served: Server, spec: Spec, control: Job, project: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    report.mkdir()
    env = {"REPORT": str(report), "PYTHONPATH": "/own"}
    faults = [{"at": {"rank": 1, "step": 6, "phase": "forward"}, "do": "sigkill"}]
    job = served.run(spec("own-code", code={"working_dir": str(project)}, preload=["mine"], env=env, faults=faults))
    assert (job.state, job.generation) == ("SUCCEEDED", 2), (job.reason, job.message, job.error)
    assert job.digest.parameters == control.digest.parameters
    reports = [json.loads(file.read_text()) for file in report.iterdir()]
    folders = {facts["cwd"] for facts in reports}
    assert len(folders) == 2, "one folder per node"
    assert {Path(folder).name for folder in folders} == {"code"}
    assert all(facts["path"] == facts["cwd"] for facts in reports)
    assert all(facts["pythonpath"] == f"{facts['cwd']}:/own" for facts in reports)
    assert {facts["who"] for facts in reports} == {"zygote", "child"}
    eventually(lambda: not any(Path(folder).exists() for folder in folders), 30)


def test_code_that_no_node_can_read_ends_the_job_with_node_and_path(served: Server, spec: Spec, project: Path) -> None:
    (project / "sibling.py").write_text("# of this test only\n")
    archive = served.client.upload_working_dir(project)
    blob = served.state / "blobs" / "sha256" / archive.removeprefix("sha256:")
    blob.write_bytes(b"altered")
    try:
        job = served.run(spec("altered", code={"archive": archive}, preload=["mine"]))
    finally:
        blob.unlink()
    assert job.state == "FAILED"
    assert "is damaged in" in json.dumps(job.error) + job.message


def test_a_program_runs_in_the_folder_of_its_code(served: Server, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "programs").mkdir(parents=True)
    (folder / "programs" / "train.py").write_text(
        "import pathlib, sys\nimport sibling, top\nprint(pathlib.Path('setting.txt').read_text(), sys.argv[1:])\n"
    )
    (folder / "programs" / "sibling.py").touch()
    (folder / "top.py").touch()
    (folder / "setting.txt").write_text("lr=3")
    workload = {"kind": "script", "entrypoint": "programs/train.py", "args": ["--fast"]}
    code = {"working_dir": str(folder)}
    job = served.run({"name": "program", "workload": workload, "layout": {"dp": 3}, "code": code})
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    for rank in range(3):
        assert "".join(served.client.logs(job.id, rank=rank)) == "lr=3 ['--fast']\n"
