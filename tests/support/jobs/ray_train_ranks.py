"""Ranks whose program calls Ray Train, forked as a zygote forks them."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from regroup.workers.contract.messages import Done, Failed, Join, Message, Restore, decode, encode
from regroup.workers.contract.rank_config import RankConfig, ScriptConfig
from tests.support.machines.forked_process import forking

FORKS = """
import json, os, selectors, socket, sys
import regroup.workers.rank.ray_train.fit
from regroup.workers.rank import main
from regroup.workers.contract.progress_page import new_page

assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not forked"
for line in sys.stdin:
    request = json.loads(line)
    pids, received = {}, {}
    with selectors.DefaultSelector() as selector:
        for number, join in enumerate(request["joins"]):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if (pid := os.fork()) == 0:
                for fd, path in ((1, f"out-{number}"), (2, f"err-{number}")):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
                for other in selector.get_map().values():
                    other.fileobj.close()
                ours.close()
                code = main.main([theirs.fileno(), new_page(), os.open(os.devnull, os.O_RDONLY)])
                sys.stdout.flush()
                os._exit(code)
            theirs.close()
            ours.send(join.encode())
            pids[number], received[number] = pid, []
            selector.register(ours, selectors.EVENT_READ, number)
        codes = {}
        while selector.get_map():
            for key, _ in selector.select():
                try:
                    data = key.fileobj.recv(1 << 20)
                except ConnectionResetError:  # the rank was killed before it read what was sent
                    data = b""
                if data:
                    received[key.data].append(data.decode())
                    continue
                selector.unregister(key.fileobj)
                key.fileobj.close()
                codes[key.data] = os.waitstatus_to_exitcode(os.waitpid(pids[key.data], 0)[1])
                if codes[key.data]:  # as an agent would: the generation has ended
                    for left in set(pids) - set(codes):
                        os.kill(pids[left], 9)
    results = [{"code": codes[number], "received": received[number]} for number in sorted(pids)]
    print(json.dumps(results), flush=True)
"""
"""Source of a process that acts as zygote and agents: it imports ray.train, forks the ranks of a generation, and
ends all of them when the first fails."""
JOIN = Join(
    "j", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", "127.0.0.1", 0, Restore("none"), "script:", RankConfig(), node_name="node-a"
)
HEAD = """
import os, signal, sys, tempfile
from pathlib import Path
import ray, ray.train, ray.train.collective, ray.train.torch
import torch
import torch.distributed as dist

def save(metrics, text, **options):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"part-{ray.train.get_context().get_world_rank()}").write_text(text)
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder), **options)
"""


@dataclass(frozen=True)
class Ended:
    """Result of one rank."""

    code: int
    received: list[Message]
    out: str
    err: str

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]

    @property
    def error(self) -> str:
        (failed,) = self.of(Failed)
        return f"{failed.error.kind}: {failed.error.message}"


Start = Callable[..., list[Ended]]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The process that forks ranks, and its working directory."""
    folder = tmp_path_factory.mktemp("forks")
    with forking(FORKS, folder, {"GLOO_SOCKET_IFNAME": "lo"}) as process:
        yield process, folder


@pytest.fixture
def run(forks: tuple[subprocess.Popen[str], Path], tmp_path: Path) -> Start:
    """A function that runs a generation of ranks of this source to its end."""
    process, folder = forks
    program = tmp_path / "train.py"

    def start(source: str, *, ranks: int = 2, generation: int = 1, restarts: int = 0, **join: Any) -> list[Ended]:
        program.write_text(HEAD + source.replace("STORAGE", repr(str(tmp_path / "runs"))))
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        script = ScriptConfig("ray_train", max_restarts=restarts, storage_uri=(tmp_path / "job").as_uri())
        joins = [
            replace(
                JOIN, generation=generation, rank=rank, world_size=ranks, local_rank=rank, local_world_size=ranks,
                store_port=store.port, entry=f"script:{program}", config=RankConfig(script=script), **join,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"joins": [encode(each).decode() for each in joins]}) + "\n")
        process.stdin.flush()
        return [
            Ended(
                result["code"],
                [decode(data.encode()) for data in result["received"]],
                (folder / f"out-{rank}").read_text(),
                (folder / f"err-{rank}").read_text(),
            )
            for rank, result in enumerate(json.loads(process.stdout.readline()))
        ]

    return start


def fit(arguments: str = "", *, ranks: str = "2", run: str = "") -> str:
    """Return the last lines of a program."""
    run_config = f"ray.train.RunConfig(name='run', storage_path=STORAGE, {run})"
    return (
        f"\nresult = ray.train.torch.TorchTrainer(loop, scaling_config=ray.train.ScalingConfig(num_workers={ranks}), "
        f"run_config={run_config}, {arguments}).fit()\n"
    )


def all_done(ended: list[Ended]) -> list[Ended]:
    """Check that all ranks ended with code 0, and return them."""
    assert [each.code for each in ended] == [0] * len(ended), [each.err for each in ended]
    assert all(len(each.of(Done)) == 1 for each in ended)
    return ended
