"""Programs that save on SIGTERM, as for spot notices and time limits: every planned end lets them."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.script_jobs import script
from tests.support.servers.regroup_server import Server, eventually

SAVE = """
import os, signal, sys, time
import torch

def steps(folder, rank, exits):
    def save(number, frame):
        open(f"{folder}/got-{rank}", "a").write(f"{int(number)} ")
        time.sleep(1)
        open(f"{folder}/saved-{rank}", "a").write("ok ")
        if exits:
            sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    open(f"{folder}/up-{rank}", "a").write("up ")
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], 0.1)
    while not os.path.exists(f"{folder}/end"):
        parameter.grad = torch.ones(2)
        optimizer.step()
        time.sleep(0.05)
"""
SCRIPT = SAVE + "\nsteps(sys.argv[1], os.environ['RANK'], exits=sys.argv[2] == 'exits')\n"
FUNCTION = SAVE + "\ndef train(run):\n    steps(run.args['folder'], run.rank, exits=True)\n"


def files(folder: Path, name: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob(f"{name}-*")}


def saving(folder: Path, name: str, how: str = "exits", **parts: Any) -> dict[str, Any]:
    (folder / "saves.py").write_text(SCRIPT)
    return script(name, folder / "saves.py", str(folder), how, ranks=2, **parts)


def wait_until_up(folder: Path, count: int = 1) -> None:
    eventually(lambda: list(files(folder, "up").values()) == ["up " * count] * 2, 120)


def terminations(served: Server, job: str) -> list[str]:
    return [event.data["message"] for event in served.client.events(job) if event.data.get("kind") == "terminating"]


def test_a_cancelled_script_saves(served: Server, tmp_path: Path) -> None:
    job = served.client.submit(saving(tmp_path, "saves"))
    wait_until_up(tmp_path)
    served.client.cancel(job.id)
    eventually(lambda: "Terminating" in [each.type for each in served.client.why(job.id).conditions], 20)
    assert "SIGTERM" in served.client.why(job.id).summary
    done = served.client.wait(job.id, timeout_s=60)
    assert (done.state, done.reason, list(done.incidents)) == ("CANCELLED", "cancelled_by_user", [])
    assert files(tmp_path, "got") == {f"got-{rank}": f"{signal.SIGTERM} " for rank in range(2)}
    assert files(tmp_path, "saved") == {f"saved-{rank}": "ok " for rank in range(2)}
    assert done.conditions == [] and terminations(served, job.id)[-1] == "all 2 ranks ended after SIGTERM"


def test_a_suspended_script_saves_and_continues(served: Server, tmp_path: Path) -> None:
    job = served.client.submit(saving(tmp_path, "rests"))
    wait_until_up(tmp_path)
    served.client.suspend(job.id)
    rests = served.client.wait_for_suspend(job.id, timeout_s=60)
    assert rests.state == "SUSPENDED" and files(tmp_path, "saved") == {f"saved-{rank}": "ok " for rank in range(2)}
    served.client.resume(job.id)
    wait_until_up(tmp_path, 2)
    (tmp_path / "end").touch()
    done = served.client.wait(job.id, timeout_s=60)
    assert (done.state, [each.reason for each in done.incidents]) == ("SUCCEEDED", ["suspended"])


def test_a_script_saves_at_its_time_limit(served: Server, tmp_path: Path) -> None:
    job = served.client.submit(saving(tmp_path, "limited", max_duration=8))
    wait_until_up(tmp_path)
    done = served.client.wait(job.id, timeout_s=90)
    assert (done.state, done.reason, list(done.incidents)) == ("FAILED", "max_duration", [])
    assert files(tmp_path, "saved") == {f"saved-{rank}": "ok " for rank in range(2)}


def test_ranks_that_do_not_end_are_killed_after_the_grace(served: Server, tmp_path: Path) -> None:
    job = served.client.submit(saving(tmp_path, "stays", "stays", termination_grace=3))
    wait_until_up(tmp_path)
    served.client.cancel(job.id)
    done = served.client.wait(job.id, timeout_s=60)
    assert done.state == "CANCELLED" and files(tmp_path, "got")["got-0"] == f"{signal.SIGTERM} "
    assert terminations(served, job.id)[-1] == "2 of 2 ranks did not end in time after SIGTERM and got SIGKILL"


def test_a_cancelled_function_saves(served: Server, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "saving_function.py").write_text(FUNCTION)
    spec = {
        "name": "function-saves",
        "workload": {"kind": "function", "function": "saving_function:train"},
        "code": {"working_dir": str(tmp_path / "code")},
        "args": {"folder": str(tmp_path)},
        "training": {"steps": 1000, "global_batch": 2, "micro_batch": 1},
        "layout": {"dp": 2},
    }
    job = served.client.submit(spec)
    wait_until_up(tmp_path)
    served.client.cancel(job.id)
    done = served.client.wait(job.id, timeout_s=60)
    assert (done.state, list(done.incidents)) == ("CANCELLED", [])
    assert files(tmp_path, "saved") == {f"saved-{rank}": "ok " for rank in range(2)}


@pytest.mark.slow
def test_a_drained_script_saves_within_its_notice(served: Server, tmp_path: Path) -> None:
    job = served.client.submit(saving(tmp_path, "leaves"))
    wait_until_up(tmp_path)
    formed = eventually(lambda: served.client.generations(job.id), 20)
    node = min(rank.node_name for rank in formed[0].ranks)
    served.client.drain(node, deadline_s=120)
    try:
        wait_until_up(tmp_path, 2)
        assert files(tmp_path, "saved") == {f"saved-{rank}": "ok " for rank in range(2)}
        (tmp_path / "end").touch()
        done = served.client.wait(job.id, timeout_s=120)
        assert (done.state, [each.reason for each in done.incidents]) == ("SUCCEEDED", ["drained"])
    finally:
        served.client.undrain(node)


@pytest.mark.slow
def test_down_lets_a_script_save(tmp_path: Path) -> None:
    server = Server(tmp_path / "state")
    server.start()
    (folder := tmp_path / "script").mkdir()
    server.client.submit(saving(folder, "saves"))
    wait_until_up(folder)
    server.down()
    assert files(folder, "got") == {f"got-{rank}": f"{signal.SIGTERM} " for rank in range(2)}
    assert files(folder, "saved") == {f"saved-{rank}": "ok " for rank in range(2)}
    assert files(folder, "up") == {f"up-{rank}": "up " for rank in range(2)}, "no other rank started"
