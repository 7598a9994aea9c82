"""The fate of a process that a rank forks is not the fate of the rank."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.messages import (
    Done,
    Failed,
    FaultDue,
    Join,
    Joined,
    Message,
    Note,
    Restore,
    StepRow,
    Stop,
    decode,
    encode,
)
from regroup.workers.contract.rank_config import RankConfig, ScriptConfig
from regroup.workers.rank import own_process
from regroup.workers.rank.agent_channel import Channel
from tests.support.machines.forked_process import forking

FORKS = """
import json, os, socket, sys
from regroup.workers.rank import main
from regroup.workers.contract.progress_page import new_page
from regroup.workers.zygote import rendezvous_store

listener = socket.create_server(("127.0.0.1", 0))
store = os.fork()
if store == 0:
    os._exit(rendezvous_store.main([listener.fileno()]))
for line in sys.stdin:
    request = json.loads(line)
    request["join"]["store_port"] = listener.getsockname()[1]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (pid := os.fork()) == 0:
        ours.close()
        for number, path in ((1, "out"), (2, "err")):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
        code = main.main([theirs.fileno(), new_page(), os.open(os.devnull, os.O_RDONLY)])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    theirs.close()
    ours.send(json.dumps(request["join"]).encode())
    received = []
    while data := ours.recv(1 << 20):
        received.append(data.decode())
    ours.close()
    print(json.dumps({"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "received": received}), flush=True)
os.kill(store, 9)
os.waitpid(store, 0)
"""
"""Source of a process that acts as zygote and agent: it forks one rank at a time, and collects its messages."""
JOIN = Join("j", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", "127.0.0.1", 0, Restore("none"), "", RankConfig(), node_name="node-a")
CHILDREN = {
    "an exception": "raise ValueError('of the child')",
    "an exit code": "sys.exit(5)",
    "an exit without a code": "sys.exit()",
    "a return": "pass",
    "steps": "steps(50)",
}
"""Ends of a forked process that runs on through the rank's own code."""
PROGRAM = """
import os, sys
import torch

def steps(count):
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], 0.1)
    for _ in range(count):
        parameter.grad = torch.ones(2)
        optimizer.step()

def body():
    child = os.fork()
    if child == 0:
        CHILD
        return
    _, status = os.waitpid(child, 0)
    print("child", os.waitstatus_to_exitcode(status), flush=True)
    steps(3)
"""
FUNCTION = "\ndef train(run):\n    body()\n"
POOL = """
import multiprocessing
def fail(number):
    raise ValueError(f"of worker {number}")
def body():
    context = multiprocessing.get_context("fork")
    process = context.Process(target=fail, args=(1,))
    process.start()
    process.join()
    with context.Pool(1) as pool:
        try:
            pool.apply(fail, (2,))
        except ValueError as error:
            print(process.exitcode, error, flush=True)
"""
THREAD = """
import threading
def fail():
    raise ValueError("of the thread")
def body():
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
"""
Run = Callable[..., tuple[int, list[Message], str]]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    folder = tmp_path_factory.mktemp("forks")
    environment = {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    with forking(FORKS, folder, environment) as process:
        yield process, folder


@pytest.fixture(params=["script", "function"])
def run(request: pytest.FixtureRequest, forks: tuple["subprocess.Popen[str]", Path]) -> Run:
    """Runs a rank to its end; its program calls `body`. Returns its code, its messages and its output."""
    process, folder = forks

    def start(source: str) -> tuple[int, list[Message], str]:
        number = len(list(folder.glob("program_*.py")))
        program = folder / f"program_{number}.py"
        if request.param == "script":
            program.write_text(f"{source}\nbody()\n")
            join = replace(JOIN, entry=f"script:{program}", config=RankConfig(script=ScriptConfig()))
        else:
            program.write_text(source + FUNCTION)
            config = RankConfig(function=f"{program.stem}:train")
            join = replace(JOIN, entry="regroup.workers.rank.user_function:train", config=config, generation=number + 1)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"join": json.loads(encode(join))}) + "\n")
        process.stdin.flush()
        report = json.loads(process.stdout.readline())
        received = [decode(data.encode()) for data in report["received"]]
        return report["code"], received, (folder / "out").read_text() + (folder / "err").read_text()

    return start


@pytest.mark.parametrize("end", CHILDREN)
def test_the_end_of_a_forked_process_is_not_that_of_its_rank(run: Run, end: str) -> None:
    code, received, output = run(PROGRAM.replace("CHILD", CHILDREN[end]))
    assert code == 0, output
    assert [message for message in received if isinstance(message, Failed)] == []
    assert [type(message) for message in received if isinstance(message, Done | Joined)] == [Joined, Done]
    expected = {"an exception": 1, "an exit code": 5}.get(end, 0)
    assert f"child {expected}\n" in output
    assert ("ValueError: of the child" in output) == (end == "an exception")
    assert max((row.step for row in received if isinstance(row, StepRow)), default=0) in (0, 3)


@pytest.mark.parametrize(("source", "shown"), [(POOL, "1 of worker 2\n"), (THREAD, "ValueError: of the thread")])
def test_exceptions_of_workers_and_threads_stay_there(run: Run, source: str, shown: str) -> None:
    code, received, output = run(source)
    assert code == 0 and shown in output
    assert [type(message) for message in received if isinstance(message, Done | Failed)] == [Done]


def test_the_rank_that_forked_reports_its_own_exception(run: Run) -> None:
    source = PROGRAM.replace("CHILD", "pass").replace("steps(3)", "raise ValueError('of the rank')")
    code, received, _ = run(source)
    assert code == 1
    assert [each.error.message for each in received if isinstance(each, Failed)] == ["of the rank"]


def test_a_forked_process_neither_sends_nor_takes_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "_rank_pid", None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    with ours, theirs:
        own_process.claim()
        channel = Channel(theirs)
        ours.send(encode(Stop("drain")))
        if (child := os.fork()) == 0:
            found: list[Any] = [channel.poll()]
            channel.send(Note(1, "child", {}, 0.0))
            try:
                channel.request(FaultDue(0, "raise"))
            except own_process.NotTheRankError as error:
                found.append(str(error))
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.waitpid(child, 0)
        nothing, refusal = json.loads(os.read(reading, 4096))
        assert nothing is None and f"process {os.getpid()} forked it" in refusal
        assert channel.poll() == Stop("drain")
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(4096)
    os.close(reading)
    os.close(writing)
