"""Two jobs on one node with users of their own, without Ray and torch.

A program: it prints what one job reaches of the other. Arguments: a folder that every user can read, with
`attempts.py`, and a range of user ids.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from regroup.workers.agent.job_host import JobHost
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.contract.agent_records import CommandRequest
from regroup.workers.contract.messages import FaultDue, Join, Restore
from regroup.workers.contract.rank_config import RankConfig
from regroup.workers.os.secret_source import SecretSource


async def _refuse_fault(due: FaultDue) -> bool:
    return False


def _host_of(name: str, folder: str, users: str) -> JobHost:
    """Return the host of a job with a secret and a place for commands."""
    uri = f"file://{folder}/storage"
    os.environ[f"KEY_OF_{name}"] = f"of {name}"
    config = AgentConfig(
        f"job_{name}_{os.getpid()}", name, "n", "n", "127.0.0.1", "s", uri, uri, log_dir=f"{folder}/logs",
        rank_users=users, secrets={"KEY": SecretSource(from_env=f"KEY_OF_{name}")},
    )  # fmt: skip
    host = JobHost(config, _refuse_fault, lambda: None)
    join = Join(
        config.job_id, 1, 0, 1, 0, 1, 0, 1, {}, "cpu", "127.0.0.1", 1, Restore("none"), f"script:{folder}/x.py",
        RankConfig(),
    )  # fmt: skip
    host.rank_places[0] = (join, {})
    return host


async def _run(host: JobHost, *command: str) -> str:
    """Run a command next to the rank of a job, and return its output."""
    request = CommandRequest(" ".join(command)[-40:], 0, command, None, b"")
    await host.exec_sessions.start(host.acquire_zygote(), request, host.rank_places[0])
    output = b""
    while True:
        reply = await host.exec_sessions.read(request.key, 65536, 20.0)
        output += b"".join(data for _, data in reply.pieces)
        if reply.ended:
            return output.decode()


def _attempts_on(job: JobHost, logs: Path) -> list[tuple[str, str]]:
    """Return attempts to reach the agent, which is this process, and everything of a job."""
    agent, zygote, home = os.getpid(), job.pids().zygote, job.identity.home
    (log,) = logs.glob("*first*")
    records = Path(tempfile.gettempdir(), f"regroup-users-{os.geteuid()}")
    return [
        *(("read", f"/proc/{pid}/{name}") for pid in (agent, zygote) for name in ("environ", "mem")),
        *(("list", str(path)) for path in (job.scratch, home, records, f"/proc/{agent}/fd", f"/proc/{zygote}/fd")),
        *(("read", str(path)) for path in (home / "private.txt", home / "tmp" / "private.txt", log)),
        *(("signal", str(pid)) for pid in (agent, zygote)),
        ("attach", str(zygote)),
        ("write", str(log)),
    ]


def _write(path: Path, attempts: list[tuple[str, str]]) -> None:
    path.write_text(json.dumps(attempts))
    path.chmod(0o644)


async def _inspect(folder: str, users: str) -> dict[str, Any]:
    first, second = _host_of("first", folder, users), _host_of("second", folder, users)
    try:
        await asyncio.gather(first.prepare(), second.prepare())
        await _run(first, "sh", "-c", "echo private > $HOME/private.txt; echo private > $TMPDIR/private.txt")
        _write(Path(folder, "attempts.json"), _attempts_on(first, Path(folder, "logs")))
        command = (sys.executable, f"{folder}/attempts.py", f"{folder}/attempts.json")
        root = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        control, _ = await root.communicate()
        return {
            "control": json.loads(control),
            "second": json.loads(await _run(second, *command)),
            "own": await _run(
                first, "sh", "-c", "cat $HOME/private.txt; echo more >> $HOME/private.txt && echo written"
            ),
            "users": [first.identity.user, second.identity.user],
            "variables": (await _run(second, "env")).splitlines(),
        }
    finally:
        await asyncio.gather(first.close(), second.close())


if __name__ == "__main__":
    os.environ["PLATFORM_PASSWORD"] = "of the platform"
    print(json.dumps(asyncio.run(_inspect(*sys.argv[1:]))))
