"""Unmodified programs as ranks: environment, exit codes, and messages to the agent."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.messages import Done, Failed, Join, Joined, Restore, decode, encode
from regroup.workers.contract.rank_config import RankConfig, ScriptConfig
from regroup.workers.contract.rank_env import SCRIPT_MODULE
from regroup.workers.rank import child_program
from tests.support.jobs.ray_train_ranks import Ended
from tests.support.machines.forked_process import forking

FORKS = """
import json, os, socket, sys
from regroup.workers.rank import main
from regroup.workers.contract.progress_page import new_page

for line in sys.stdin:
    request = json.loads(line)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (pid := os.fork()) == 0:
        ours.close()
        for number, path in ((1, "out"), (2, "err")):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = main.main([theirs.fileno(), new_page(), os.open(os.devnull, os.O_RDONLY)])
        sys.stdout.flush()
        os._exit(code)
    theirs.close()
    ours.send(request["join"].encode())
    received = []
    while data := ours.recv(1 << 20):
        received.append(data.decode())
    ours.close()
    print(json.dumps({"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "received": received}), flush=True)
"""
"""Does what zygote and agent do: has torch imported, forks a rank for each Join, takes down what it says."""
JOIN = Join(
    "j", 3, 1, 2, 1, 2, 0, 1, {}, "cpu", "h", 1, Restore("none", 4), "script:", RankConfig(), node_name="node-a"
)


Start = Callable[..., Ended]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The process that forks ranks, and its working directory."""
    folder = tmp_path_factory.mktemp("forks")
    with forking(FORKS, folder) as process:
        yield process, folder


@pytest.fixture
def run(forks: tuple[subprocess.Popen[str], Path], tmp_path: Path) -> Start:
    """Runs a rank whose program is this source, or that joins like this, to its end."""
    process, folder = forks
    script = tmp_path / "train.py"

    def start(source: str = "", **join: Any) -> Ended:
        script.write_text(source)
        request = {"join": encode(replace(JOIN, **{"entry": f"script:{script}", **join})).decode()}
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        report = json.loads(process.stdout.readline())
        received = [decode(data.encode()) for data in report["received"]]
        return Ended(report["code"], received, (folder / "out").read_text(), (folder / "err").read_text())

    return start


def test_the_nodes_devices_are_all_visible_on_cuda_and_none_on_cpu(run: Start) -> None:
    shows = "import os\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES']), os.environ['LOCAL_RANK'])"
    assert run(shows, device="cuda", node_devices=(2, 5)).out == "'2,5' 1\n"
    assert run(shows, device="cpu", node_devices=(0, 1)).out == "'' 1\n"


def test_a_script_gets_its_restart_count_and_runs_in_its_folder(run: Start, tmp_path: Path) -> None:
    source = """
import os, sys
import neighbor
print([os.environ["TORCHELASTIC_" + name] for name in ("RESTART_COUNT", "MAX_RESTARTS", "RUN_ID")])
print(sys.argv, os.getcwd(), __file__, __name__, sys.modules["__main__"].__dict__ is globals())
"""
    (tmp_path / "neighbor.py").touch()
    ended = run(source, config=RankConfig(script=ScriptConfig(args=("--a", "b"), max_restarts=5)))
    script = tmp_path / "train.py"
    assert ended.out.splitlines() == [
        "['2', '5', 'j']",
        f"{[str(script), '--a', 'b']} {tmp_path} {script} __main__ True",
    ]
    assert [type(message) for message in ended.received] == [Joined, Done]
    assert ended.code == 0


def test_a_program_that_is_not_python_is_a_rank(run: Start, tmp_path: Path) -> None:
    command = ("sh", "-c", 'echo "$ROLE_NAME $RANK of $WORLD_SIZE in $(pwd)"; exit $CODE')
    entry = f"{SCRIPT_MODULE}{child_program.MODULE}"
    for code, last in ((0, Done), (3, Failed)):
        config = ScriptConfig(args=("env", f"CODE={code}", *command), cwd=str(tmp_path), role="trainer")
        ended = run(entry=entry, config=RankConfig(script=config))
        assert (ended.code, ended.out) == (code, f"trainer 1 of 2 in {tmp_path}\n")
        assert [type(message) for message in ended.received] == [Joined, last]
        final = ended.received[-1]
        assert isinstance(final, Done) or (isinstance(final, Failed) and "exited with code 3" in final.error.message)


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("import sys; sys.exit()", 0, None),
        ("import sys; sys.exit(0)", 0, None),
        ("import sys; sys.exit(3)", 3, "the script exited with code 3"),
        ("import sys; sys.exit('no data')", 1, "the script exited with code 1: no data"),
        ("1 / 0", 1, "division by zero"),
        ("def train(:", 1, "invalid syntax (train.py, line 1)"),
    ],
)
def test_exit_codes_are_those_of_python(run: Start, source: str, code: int, message: str | None) -> None:
    ended = run(source)
    assert ended.code == code
    assert [failed.error.message for failed in ended.of(Failed)] == ([] if message is None else [message])
    assert len(ended.of(Done)) == (code == 0)


def test_a_group_that_it_destroys_is_not_freed_while_threads_of_it_may_need_the_gil(run: Start) -> None:
    # Freed, it has been joined; torch may wait there forever for a thread that waits for the GIL. Threads name
    # themselves, one perhaps only after the barrier: those that had a name before must still be there.
    ended = run(
        "import os, tempfile\n"
        "from pathlib import Path\n"
        "from torch import distributed as dist\n"
        "def threads():\n"
        "    tasks = Path('/proc/self/task').iterdir()\n"
        "    return {task.name for task in tasks if 'gloo_runloop' in (task / 'comm').read_text()}\n"
        "dist.init_process_group('gloo', store=dist.FileStore(tempfile.mktemp(), 1), rank=0, world_size=1)\n"
        "dist.barrier()\n"
        "before = threads()\n"
        "dist.destroy_process_group()\n"
        "print(len(before) > 0, before <= threads(), dist.is_initialized())\n"
    )
    assert (ended.code, ended.out) == (0, "True True False\n"), ended.err


def test_what_is_left_is_waited_for_before_it_is_done(run: Start) -> None:
    source = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(print, "pool")
def late():
    time.sleep(0.3)
    print("thread")
threading.Thread(target=late).start()
atexit.register(print, "exit")
sys.exit({code})
"""
    for code in (0, 7):
        ended = run(source.replace("{code}", str(code)))
        assert (ended.code, ended.out.split()) == (code, ["pool", "thread", "exit"])


def test_what_a_node_lacks_is_named_with_the_node(run: Start, tmp_path: Path) -> None:
    for join, message in (
        ({"entry": "script:/nowhere/x.py", "config": in_folder(str(tmp_path))},
         "no script /nowhere/x.py on node node-a: No such file or directory"),
        ({"config": in_folder("/nowhere")},
         "no folder /nowhere on node node-a: No such file or directory"),
        ({"entry": "script-module:no.such", "config": in_folder(str(tmp_path))},
         f"no module no.such in {tmp_path} or on the path of node node-a"),
    ):  # fmt: skip
        (failed,) = run(**join).of(Failed)
        assert (failed.error.error_class, failed.error.message) == ("input", message)


SPAWNS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor([index])

if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="spawn")
    print([batch.flatten().tolist() for batch in loader])
"""


def in_folder(cwd: str) -> RankConfig:
    return RankConfig(script=ScriptConfig(cwd=cwd))


@pytest.mark.parametrize("entry", ["", "script-module:train"])
def test_spawned_loader_workers_find_what_the_program_defines(run: Start, tmp_path: Path, entry: str) -> None:
    by_module = {"entry": entry, "config": in_folder(str(tmp_path))} if entry else {}
    ended = run(SPAWNS, **by_module)
    assert (ended.code, ended.out) == (0, "[[0, 1, 2, 3], [4, 5, 6, 7]]\n"), ended.err
