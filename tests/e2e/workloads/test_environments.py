"""Jobs with their own Python: conflicting versions at once, a failed install, a cancel during a build."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages.tiny_packages import flavours, never_built
from tests.support.servers.regroup_server import Server, assert_same_result, called, eventually

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PRINTS = """
import pathlib, sys, time
import flavour, torch
here = pathlib.Path(sys.argv[1])
(here / flavour.VERSION).touch()
deadline = time.monotonic() + 60
while len(list(here.iterdir())) < 2 and time.monotonic() < deadline:  # until the other job's rank runs too
    time.sleep(0.02)
print(flavour.VERSION, len(list(here.iterdir())))
"""


def job(name: str, program: Path, wheels: Path, *requirements: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a spec that runs a file with the packages of a folder."""
    return {
        "name": name,
        "workload": {"kind": "script", "entrypoint": str(program), "args": list(args)},
        "environment": {"requirements": list(requirements)},
        "env": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)},
    }


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A script that prints its flavour, once both jobs run."""
    path = tmp_path / "prints.py"
    path.write_text(PRINTS)
    return path


def test_two_jobs_with_conflicting_versions_of_a_library_run_at_once(
    served: Server, tmp_path: Path, program: Path
) -> None:
    wheels, meeting = flavours(tmp_path / "wheels"), tmp_path / "meeting"
    meeting.mkdir()
    jobs = [
        served.client.submit(job(f"flavour-{major}", program, wheels, f"flavour=={major}.0", args=(str(meeting),)))
        for major in (1, 2)
    ]
    for major, submitted in enumerate(jobs, 1):
        done = served.client.wait(submitted.id, timeout_s=120)
        assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
        assert "".join(served.client.logs(done.id, rank=0, generation=1)) == f"{major}.0 2\n"
        events = list(served.client.events(done.id))
        assert "environment" in [event.data["phase"] for event in events if event.type == "phase"]
        (note,) = [event.data for event in events if event.data.get("kind") == "environment"]
        assert note["installed"] and note["seconds"] > 0
    (count,) = [line for line in served.get("/metrics").splitlines() if "install_seconds_count" in line]
    assert float(count.split()[-1]) >= 2


def test_a_failed_installation_ends_the_job_with_the_reason(served: Server, tmp_path: Path, program: Path) -> None:
    done = served.run(job("no-flavour", program, flavours(tmp_path / "wheels"), "flavour==3.0"), within_s=90)
    assert (done.state, done.reason, done.generation) == ("FAILED", "invalid_input", 0)
    reason = "No solution found when resolving dependencies: Because there is no version of flavour==3.0"
    assert f"could not be installed: {reason}" in done.message
    assert "could not be installed" in served.client.why(done.id).summary
    assert done.error is not None and "there is no version of flavour==3.0" in done.error["traceback"]


def test_a_job_that_is_cancelled_while_it_installs_leaves_nothing(
    served: Server, tmp_path: Path, program: Path
) -> None:
    title = f"building-{uuid.uuid4().hex}"
    there = set(_venvs(served))
    submitted = served.client.submit(job("endless", program, never_built(tmp_path / "wheels", title), "endless"))
    eventually(lambda: called(title), 60)
    eventually(lambda: "environment" in served.client.why(submitted.id).summary, 20)
    assert served.client.get(submitted.id).state == "STARTING"
    began_s = time.monotonic()
    served.client.cancel(submitted.id)
    done = served.client.wait(submitted.id, timeout_s=30)
    assert done.state == "CANCELLED" and time.monotonic() - began_s < 15
    eventually(lambda: not called(title), 15)
    eventually(lambda: set(_venvs(served)) == there, 15)


def test_an_interpreter_without_torch_is_refused_by_name(served: Server, program: Path) -> None:
    import os
    import sys

    spec = job("plain", program, program.parent)
    # The interpreter of this environment has no packages installed.
    underneath = os.path.realpath(sys.executable)
    done = served.run({**spec, "environment": {"interpreter": underneath}}, within_s=90)
    assert (done.state, done.reason) == ("FAILED", "invalid_input")
    assert f"{underneath} on node " in done.message and "has no torch, which the job needs" in done.message


def _venvs(served: Server) -> list[Path]:
    """Return the environments on the nodes, complete or not."""
    folders = [path for path in (served.state.parent / "venvs").iterdir() if path.is_dir()]
    return [path for path in folders if path.name != "uv-cache"]


TORCH_ONLY = {"base": "none", "requirements": ["torch==2.13.0"]}
SEES = """
import regroup.workers
seen = []
for name in ("torch", "numpy", "ray", "pydantic", "regroup.service", "regroup.api"):
    try:
        __import__(name)
        seen.append(name)
    except ImportError:
        pass
print(*seen)
"""


@pytest.mark.slow  # installs torch
def test_a_python_with_only_torch_trains_loses_a_rank_and_has_no_other_package(served: Server, tmp_path: Path) -> None:
    sees = tmp_path / "sees.py"
    sees.write_text(SEES)
    workload = {"kind": "script", "entrypoint": str(sees)}
    imports = served.run({"name": "sees", "workload": workload, "environment": TORCH_ONLY}, within_s=600)
    assert imports.state == "SUCCEEDED", (imports.reason, imports.message, imports.error)
    assert "".join(served.client.logs(imports.id, rank=0, generation=1)) == "torch\n"

    function = {
        "workload": {"kind": "function", "function": "function_fsdp:train"},
        "training": {"steps": 24, "global_batch": 12, "micro_batch": 2},
        "layout": {"dp": 4},
        "snapshot": {"every_steps": 1},
        "code": {"working_dir": str(EXAMPLES)},
        "preload": ["function_fsdp"],
    }
    control = served.run({"name": "function-platform", **function})
    fault = {"at": {"rank": 2, "step": 13, "phase": "optimizer"}, "do": "sigkill"}
    done = served.run({"name": "function-torch-only", **function, "environment": TORCH_ONLY, "faults": [fault]})
    assert_same_result(served, done, control)
    (incident,) = done.incidents
    assert incident.recovery_action == "respawn" and incident.steps_lost is not None and incident.steps_lost <= 1
    notes = [event.data for event in served.client.events(done.id) if event.data.get("kind") == "environment"]
    assert notes and not any(note["installed"] for note in notes)  # the job before created it
    print("torch-only function:", incident.durations, [note["seconds"] for note in notes])


@pytest.mark.slow  # installs torch
def test_an_unmodified_torchrun_script_loses_a_rank_in_its_own_python(served: Server, tmp_path: Path) -> None:
    arguments = ["--folder", str(tmp_path / "state"), "--steps", "24"]
    spec = {
        "name": "own-ddp",
        "workload": {"kind": "script", "entrypoint": str(EXAMPLES / "torchrun_ddp.py"), "args": arguments, "steps": 24},
        "layout": {"dp": 4},
        "environment": {"base": "none", "requirements": [*TORCH_ONLY["requirements"], "numpy"]},
        "faults": [{"at": {"rank": 2, "step": 13, "phase": "optimizer"}, "do": "sigkill"}],
    }
    done = served.run(spec, within_s=600)
    assert done.state == "SUCCEEDED", (done.reason, done.message, done.error)
    assert (done.step, done.generation) == (24, 2)
    (incident,) = done.incidents
    assert (incident.reason, incident.recovery_action) == ("rank_exit", "respawn"), incident
    events = list(served.client.events(done.id))
    notes = [event.data for event in events if event.data.get("kind") == "environment"]
    # Two nodes of this machine share a folder, so one waits for the other.
    assert sorted(note["installed"] for note in notes) == [False, True]
    print("own Python, script:", incident.durations, [note["seconds"] for note in notes])
