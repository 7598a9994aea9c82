"""Jobs with users of their own: code in a rank reaches neither the platform nor another job, and recovery still works.

Real processes of real users. The control of each attempt is the same attempt of root, which must succeed.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.api.schemas.exec import ExecOutput
from regroup.api.schemas.jobs import Job
from regroup.service.local import ray_cluster
from regroup.service.local.api_token import TOKEN_FILE_VARIABLE
from regroup.service.local.private_files import create_private
from regroup.service.local.secrets_key import KEY_FILE_NAME
from regroup.workers.os import scratch_dir
from regroup.workers.os.process_user import real_user
from tests.support.checks.leaks import SESSION_VARIABLE
from tests.support.jobs import access_attempts
from tests.support.jobs.step_gates import Gates
from tests.support.machines.other_users import FIRST_USER, LAST_USER, USER, python_for_all
from tests.support.servers.regroup_server import Server, agent_of, assert_same_result, eventually

pytestmark = [pytest.mark.users, pytest.mark.slow]

VICTIM = """
import json, multiprocessing.shared_memory, os, socket, sys, tempfile, time
import torch.distributed as dist
dist.init_process_group("gloo")
memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
folder = tempfile.gettempdir()
with open(f"{folder}/private.txt", "w") as file:
    file.write("of the first job")
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{folder}/private.sock")
listener.listen()
place = {"folder": folder, "memory": f"/dev/shm/{memory.name.lstrip('/')}", "env": dict(os.environ)}
print(json.dumps(place), flush=True)
try:
    time.sleep(1000)
finally:
    memory.close()
    memory.unlink()
"""
ATTACKER = """
import json, subprocess, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
command = [sys.executable, "attempts.py", "attempts.json"]
print(subprocess.run(command, capture_output=True, text=True).stdout, flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """A folder that every user can read, unlike the temporary folders of tests."""
    folder = Path(tempfile.mkdtemp(prefix="regroup-public-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def isolated(public: Path) -> Iterator[Server]:
    """A server whose jobs have users of their own. Its state and token are protected by nothing but their modes."""
    token = public / "api.token"
    create_private(token, Path(os.environ[TOKEN_FILE_VARIABLE]).read_text())
    server = Server(
        public / "state",
        nodes=2,
        python=python_for_all(public),
        environment={
            "REGROUP_RANK_ENVIRONMENT": SESSION_VARIABLE,
            "PLATFORM_PASSWORD": "of the platform",
            TOKEN_FILE_VARIABLE: str(token),
        },
        arguments=["--rank-users", f"{FIRST_USER}-{LAST_USER}"],
    )
    server.start()
    yield server
    server.down()


@pytest.fixture(scope="module")
def victim(isolated: Server, public: Path) -> Iterator[Job]:
    """A running job of one rank with a file, a socket and shared memory."""
    job = start_script(isolated, public, "victim", VICTIM)
    yield job
    isolated.client.cancel(job.id)
    isolated.client.wait(job.id, timeout_s=60)


def start_script(server: Server, public: Path, name: str, source: str) -> Job:
    """Submit a script of one rank, and wait for its first line."""
    (public / f"{name}.py").write_text(source)
    workload = {"kind": "script", "entrypoint": str(public / f"{name}.py")}
    job = server.client.submit({"name": name, "workload": workload, "layout": {"dp": 1}})
    eventually(lambda: first_line(server, job), 90)
    return server.client.get(job.id)


def first_line(server: Server, job: Job) -> str:
    now = server.client.get(job.id)
    assert now.state not in ("FAILED", "CANCELLED"), (now.reason, now.message, now.error)
    text = "".join(server.client.logs(job.id)) if now.state == "RUNNING" else ""
    return text.partition("\n")[0] if "\n" in text else ""


def rank_pid(server: Server, job: Job) -> int:
    (stack,) = server.client.stacks(job.id)
    assert f"{job.name}.py" in stack.text, stack
    return stack.pid


def attempts_on(server: Server, job: Job) -> list[tuple[str, str]]:
    """Return attempts to reach the platform, and everything that a job has on its node."""
    found = json.loads(first_line(server, job))
    rank, server_pid = rank_pid(server, job), server.pid
    agent = agent_of(rank)
    scratch = scratch_dir.holders()[agent]
    assert found["folder"].startswith(str(scratch)), "temporary files of a job are in its scratch folder"
    cluster = ray_cluster.load(server.state)
    assert cluster is not None
    daemons = [process.pid for process in cluster.raylets.values()]
    named = [str(path) for path in Path(cluster.temp_dir).rglob("*") if path.is_socket()]
    sockets = [path for path in named if access_attempts.attempt("connect", path) == "ok"]  # some have no listener
    logs = list(Path(cluster.temp_dir).rglob(f"regroup-*{job.id}*rank0*"))
    names = ("ray.token", "regroup.db", KEY_FILE_NAME)
    state = [server.state.parent / "api.token", *(server.state / name for name in names)]
    assert sockets and logs and all(path.exists() for path in state)
    processes = (agent, server_pid, rank, *daemons)
    return [
        *(("read", f"/proc/{pid}/{name}") for pid in processes for name in ("environ", "mem")),
        *(("list", f"/proc/{pid}/fd") for pid in processes),
        *(("signal", str(pid)) for pid in processes),
        *(("read", str(path)) for path in (*state, *logs)),
        *(("write", str(path)) for path in state),
        *(("connect", path) for path in sockets),
        *(("list", str(path)) for path in (server.state, scratch, found["folder"], logs[0].parent)),
        ("read", f"{found['folder']}/private.txt"),
        ("connect", f"{found['folder']}/private.sock"),
        ("read", found["memory"]),
        ("write", found["memory"]),
        ("attach", str(rank)),
        ("attach", str(agent)),
        ("api", f"{server.url} {state[0]}"),
    ]


def test_code_of_a_job_reaches_neither_the_platform_nor_another_job(
    isolated: Server, victim: Job, public: Path
) -> None:
    attempts = attempts_on(isolated, victim)
    shutil.copy(access_attempts.__file__, public / "attempts.py")
    (public / "attempts.json").write_text(json.dumps(attempts))
    command = [sys.executable, str(public / "attempts.py"), str(public / "attempts.json")]
    control = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert {key for key, result in json.loads(control).items() if result != "ok"} == set(), "root reaches everything"

    attacker = start_script(isolated, public, "attacker", ATTACKER)
    try:
        results = json.loads(first_line(isolated, attacker))
        assert len(results) == len(attempts)
        assert {key for key, result in results.items() if result == "ok"} == set()
        users = {real_user(rank_pid(isolated, job)) for job in (victim, attacker)}
        assert len(users) == 2 and all(user is not None and FIRST_USER <= user <= LAST_USER for user in users)
    finally:
        isolated.client.cancel(attacker.id)
        isolated.client.wait(attacker.id, timeout_s=60)


def test_a_user_of_the_machine_reaches_neither_the_platform_nor_a_job(
    isolated: Server, victim: Job, public: Path
) -> None:
    attempts = attempts_on(isolated, victim)
    shutil.copy(access_attempts.__file__, public / "attempts.py")
    (public / "attempts.json").write_text(json.dumps(attempts))
    command = [str(public / "python-for-all"), str(public / "attempts.py"), str(public / "attempts.json")]
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    program = f"exec {' '.join(as_user)} {sys.executable} {command[1]} {command[2]}"
    inside = [command[0], "-c", f"import os; os.execvp('sh', ['sh', '-c', {program!r}])"]
    done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done
    results = json.loads(done.stdout)
    assert {key for key, result in results.items() if result == "ok"} == set()


def test_ranks_get_listed_variables_and_folders_of_their_own(isolated: Server, victim: Job) -> None:
    env = json.loads(first_line(isolated, victim))["env"]
    assert not {"PLATFORM_PASSWORD", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "REGROUP_STATE_DIR"} & env.keys()
    assert env[SESSION_VARIABLE] == os.environ[SESSION_VARIABLE], "the operator lets this one pass"
    assert env["HOME"].startswith(env["REGROUP_SCRATCH"]) and env["TMPDIR"].startswith(env["HOME"])


def test_operators_see_the_mode_of_the_server_and_of_each_node(isolated: Server, victim: Job) -> None:
    assert "regroup_jobs_isolated 1.0" in isolated.get("/metrics")
    users = [event.data["user"] for event in isolated.client.events(victim.id) if event.data.get("kind") == "node"]
    assert users == [real_user(rank_pid(isolated, victim))]


def test_a_command_next_to_a_rank_runs_as_the_user_of_the_job(isolated: Server, victim: Job) -> None:
    program = "cd $TMPDIR; cat private.txt; touch /usr/made-by-a-job 2>/dev/null || echo refused; id -u; "
    program += "grep -E 'Cap(Eff|Prm)|NoNew' /proc/self/status"
    events = list(isolated.client.exec(victim.id, ["sh", "-c", program]))
    text = b"".join(event.data for event in events if isinstance(event, ExecOutput)).decode()
    refused, user, *rights = text.removeprefix("of the first job").split("\n")[:5]
    assert refused == "refused" and int(user) == real_user(rank_pid(isolated, victim))
    assert [line.split()[1] for line in rights] == ["0" * 16, "0" * 16, "1"]


@pytest.mark.parametrize("do", ["sigkill", "abort", "kill_zygote", "kill_store", "kill_agent"])
def test_recovery_from_memory_and_from_storage_gives_the_same_result(
    isolated: Server, control: Job, public: Path, do: str
) -> None:
    folder = Path(tempfile.mkdtemp(dir=public))
    folder.chmod(0o777)  # the job's user writes there
    gates = Gates(folder, 11)
    faults = [{"at": {"rank": 1, "step": 12, "phase": "forward"}, "do": do}]
    job = isolated.client.submit(spec(public, f"recovers-{do.replace('_', '-')}", faults=faults, **gates.parts))
    eventually(lambda: [saved.step for saved in isolated.client.checkpoints(job.id)] == [8], 120)
    gates.open(11)
    job = isolated.client.wait(job.id, timeout_s=240)
    source = "checkpoint" if do == "kill_agent" else "memory"
    assert_same_result(isolated, job, control)
    assert len(job.incidents) == 1
    assert isolated.client.generations(job.id)[-1].restore["kind"] == source


@pytest.fixture(scope="module")
def control(isolated: Server, public: Path) -> Job:
    """The undisturbed run, which also writes checkpoints."""
    job = isolated.run(spec(public, "control"))
    assert job.state == "SUCCEEDED", (job.reason, job.message, job.error)
    assert isolated.client.checkpoints(job.id)
    return job


def spec(public: Path, name: str, **parts: Any) -> dict[str, Any]:
    """Return a small job on 2 × 1 ranks, so that a job of the other tests fits next to it."""
    for module in ("argparse", "heapq"):
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{module}.py", public)
    data = {"train": [str(public / "argparse.py")], "validation": [str(public / "heapq.py")]}
    model = {"dim": 32, "layers": 2, "heads": 2}
    return {
        "name": name,
        "workload": {"kind": "builtin", "model": model, "data": data},
        "training": {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": 24},
        "layout": {"dp": 2},
        "checkpoint": {"every_steps": 8},
        "snapshot": {"every_steps": 1, "mirror": "off"},
        **parts,
    }
