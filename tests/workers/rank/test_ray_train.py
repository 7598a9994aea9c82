"""Programs that call Ray Train, as ranks in processes of their own: what they find, and what outlives them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from regroup.workers.contract import (
    Done,
    ErrorClass,
    Failed,
    Join,
    Message,
    Report,
    Restore,
    Restored,
    StepRow,
    decode,
    encode,
)

FORKS = """
import json, os, selectors, socket, sys
import regroup.workers.rank.ray_train.fit
from regroup.workers.rank import rank
from regroup.workers.rank.progress import new_page

assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not forked"
for line in sys.stdin:
    asked = json.loads(line)
    pids, heard = {}, {}
    with selectors.DefaultSelector() as selector:
        for number, join in enumerate(asked["joins"]):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if (pid := os.fork()) == 0:
                for fd, path in ((1, f"out-{number}"), (2, f"err-{number}")):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
                for other in selector.get_map().values():
                    other.fileobj.close()
                ours.close()
                code = rank.main([theirs.fileno(), new_page()])
                sys.stdout.flush()
                os._exit(code)
            theirs.close()
            ours.send(join.encode())
            pids[number], heard[number] = pid, []
            selector.register(ours, selectors.EVENT_READ, number)
        codes = {}
        while selector.get_map():
            for key, _ in selector.select():
                try:
                    data = key.fileobj.recv(1 << 20)
                except ConnectionResetError:  # it was killed before it read what it was sent
                    data = b""
                if data:
                    heard[key.data].append(data.decode())
                    continue
                selector.unregister(key.fileobj)
                key.fileobj.close()
                codes[key.data] = os.waitstatus_to_exitcode(os.waitpid(pids[key.data], 0)[1])
                if codes[key.data]:  # as an agent would: the generation is over
                    for left in set(pids) - set(codes):
                        os.kill(pids[left], 9)
    told = [{"code": codes[number], "heard": heard[number]} for number in sorted(pids)]
    print(json.dumps(told), flush=True)
"""
"""Does what zygote and agents do: has ray.train imported, forks the ranks of a generation, ends them with the first."""
JOIN = Join("j", 1, 0, 1, 0, 1, 0, 1, {}, "cpu", "127.0.0.1", 0, Restore("none"), "script:", {}, node_name="node-a")
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
    """What came of one rank."""

    code: int
    heard: list[Message]
    out: str
    err: str

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    @property
    def error(self) -> str:
        (failed,) = self.of(Failed)
        return f"{failed.error.kind}: {failed.error.message}"


Start = Callable[..., list[Ended]]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The process that forks ranks, and its working directory."""
    folder = tmp_path_factory.mktemp("forks")
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process, folder
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def run(forks: tuple[subprocess.Popen[str], Path], tmp_path: Path) -> Start:
    """Runs a generation of ranks whose program is this source, to its end."""
    process, folder = forks
    program = tmp_path / "train.py"

    def start(source: str, *, ranks: int = 2, generation: int = 1, restarts: int = 0, **join: Any) -> list[Ended]:
        program.write_text(HEAD + source.replace("STORAGE", repr(str(tmp_path / "runs"))))
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        config = {
            "script": {"kind": "ray_train", "args": []},
            "max_restarts": restarts,
            "storage_uri": (tmp_path / "job").as_uri(),
        }
        joins = [
            replace(
                JOIN, generation=generation, rank=rank, world_size=ranks, local_rank=rank, local_world_size=ranks,
                store_port=store.port, entry=f"script:{program}", config=config, **join,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"joins": [encode(each).decode() for each in joins]}) + "\n")
        process.stdin.flush()
        return [
            Ended(
                told["code"],
                [decode(data.encode()) for data in told["heard"]],
                (folder / f"out-{rank}").read_text(),
                (folder / f"err-{rank}").read_text(),
            )
            for rank, told in enumerate(json.loads(process.stdout.readline()))
        ]

    return start


def fit(arguments: str = "", *, ranks: str = "2", run: str = "") -> str:
    """The end of a program."""
    run_config = f"ray.train.RunConfig(name='run', storage_path=STORAGE, {run})"
    return (
        f"\nresult = ray.train.torch.TorchTrainer(loop, scaling_config=ray.train.ScalingConfig(num_workers={ranks}), "
        f"run_config={run_config}, {arguments}).fit()\n"
    )


def well(ended: list[Ended]) -> list[Ended]:
    """All ranks have ended as they should."""
    assert [each.code for each in ended] == [0] * len(ended), [each.err for each in ended]
    assert all(len(each.of(Done)) == 1 for each in ended)
    return ended


PLACES = """
ray.init(num_cpus=4)
print("driver", ray.is_initialized())
word = "closed over"

def loop(config):
    context = ray.train.get_context()
    said = ray.train.collective.broadcast_from_rank_zero({"from": context.get_world_rank()})
    ray.train.collective.barrier()
    total = torch.tensor([1.0 + context.get_world_rank()])
    dist.all_reduce(total)
    print(word, config["lr"], context.get_world_rank(), context.get_world_size(), context.get_local_rank(),
          context.get_local_world_size(), context.get_node_rank(), context.get_experiment_name(), said, total.item(),
          ray.train.torch.get_device(), ray.train.torch.get_devices(), ray.train.get_checkpoint(),
          os.environ["GREETING"], context.get_storage().experiment_fs_path == STORAGE + "/run")
    return f"value of {context.get_world_rank()}"
"""


def test_the_program_runs_once_and_its_loop_on_every_rank(run: Start) -> None:
    runtime = "worker_runtime_env={'env_vars': {'GREETING': 'hello'}}"
    end = "print('result', result.return_value, result.metrics, result.checkpoint, result.error, dist.is_initialized())"
    zero, one = well(run(PLACES + fit("train_loop_config={'lr': 0.5}", run=runtime) + end))
    told = "closed over 0.5 {0} 2 {0} 2 0 run {{'from': 0}} 3.0 cpu [device(type='cpu')] None hello True"
    assert zero.out.splitlines() == ["driver False", told.format(0), "result value of 0 None None None False"]
    assert one.out.splitlines() == [told.format(1)]
    assert not zero.err and not one.err


TWICE = """
def loop(config):
    total = torch.tensor([float(config["add"])])
    dist.all_reduce(total)
    print("total", total.item())

for add in (1, 2):
    scaling = ray.train.ScalingConfig(num_workers=2)
    print(ray.train.torch.TorchTrainer(loop, train_loop_config={"add": add}, scaling_config=scaling).fit().path[-2:])
sys.exit()
"""


def test_a_program_may_fit_twice_and_leave_by_exit(run: Start) -> None:
    zero, one = well(run(TWICE))
    assert zero.out.splitlines() == ["total 2.0", "-j", "total 4.0", "-2"]
    assert one.out.splitlines() == ["total 2.0", "total 4.0"]


CHECKPOINTS = """
def loop():
    newest = ray.train.get_checkpoint()
    done = 0
    if newest:
        with newest.as_directory() as folder:
            parts = {path.name: path.read_text() for path in sorted(Path(folder).iterdir())}
        done = int(parts["part-0"])
        print("goes on from", parts)
    for epoch in range(done + 1, 6):
        save({"loss": 1.0 / epoch, "score": {"best": abs(epoch - 2)}}, str(epoch))
        if epoch == 3 and WITH_KILL and ray.train.get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""
SHOWN = """
print("kept", [metrics["loss"] for _, metrics in result.best_checkpoints], result.metrics["loss"],
      len(result.metrics_dataframe))
"""


def folders(tmp_path: Path) -> list[str]:
    """What is in the run's folder of checkpoints."""
    return sorted(path.name for path in (tmp_path / "runs" / "run").iterdir() if path.is_dir())


def test_after_a_kill_the_newest_checkpoint_of_all_ranks_is_there_also_at_another_size(
    run: Start, tmp_path: Path
) -> None:
    keep = "checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2)"
    killed = run(CHECKPOINTS.replace("WITH_KILL", "True") + fit(run=keep))
    assert killed[1].code == -9
    assert len(folders(tmp_path)) in (2, 3), "the fourth may be on its way"
    again = well(
        run(CHECKPOINTS.replace("WITH_KILL", "False") + fit(ranks="(1, 4)", run=keep) + SHOWN, ranks=3, generation=2)
    )
    goes_on = "goes on from {'part-0': '3', 'part-1': '3'}"
    assert again[0].out.splitlines() == [goes_on, "kept [0.25, 0.2] 0.2 2"]
    assert again[2].out.splitlines() == [goes_on]
    assert len(folders(tmp_path)) == 2
    assert [report.metrics for report in again[0].of(Report)] == [
        {"loss": 0.25, "score/best": 2.0},
        {"loss": 0.2, "score/best": 3.0},
    ]
    assert not again[1].of(Report), "rank 0 speaks for all"


def test_the_best_and_the_newest_are_kept(run: Start, tmp_path: Path) -> None:
    config = "num_to_keep=2, checkpoint_score_attribute='score/best', checkpoint_score_order='min'"
    keep = f"checkpoint_config=ray.train.CheckpointConfig({config})"
    (zero,) = well(run(CHECKPOINTS.replace("WITH_KILL", "False") + fit(ranks="1", run=keep) + SHOWN, ranks=1))
    assert zero.out == "kept [0.3333333333333333, 0.5] 0.2 2\n"
    assert len(folders(tmp_path)) == 3, "the newest too, though it is not among the best"


COUNTS_NOTHING = """
def loop():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = 4 if ray.train.get_checkpoint() else 0
    for step in range(done + 1, 8):
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        if step == 4:
            save({}, "x")
        if step == 6 and not done:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_steps_are_known_from_the_checkpoint_where_the_optimizer_counts_none(run: Start) -> None:
    assert run(COUNTS_NOTHING + fit(ranks="1"), ranks=1)[0].code == -9
    (zero,) = well(run(COUNTS_NOTHING + fit(ranks="1"), ranks=1, generation=2, restore=Restore("none", 6)))
    (restored,) = zero.of(Restored)
    assert (restored.step, restored.is_known) == (4, True)
    assert [row.step for row in zero.of(StepRow)] == [5, 6, 7]


TORN = """
def loop():
    if newest := ray.train.get_checkpoint():
        print("goes on from", Path(newest.path, "part-0").read_text())
        return
    save({"loss": 1.0}, "whole", checkpoint_dir_name="one")
    def half(checkpoint, name):
        folder = Path(ray.train.get_context().get_storage().experiment_fs_path, name)
        folder.mkdir(exist_ok=True)
        (folder / "part-0").write_text("torn")
        os.kill(os.getpid(), signal.SIGKILL)
    save({"loss": 0.5}, "torn", checkpoint_dir_name="two", checkpoint_upload_fn=half)
"""


def test_a_checkpoint_that_was_torn_never_counts_and_is_cleared_away(run: Start, tmp_path: Path) -> None:
    assert run(TORN + fit(ranks="1"), ranks=1)[0].code == -9
    assert folders(tmp_path) == ["one", "two"]
    (zero,) = well(run(TORN + fit(ranks="1"), ranks=1, generation=2))
    assert zero.out == "goes on from whole\n"
    assert folders(tmp_path) == ["one"]


def test_a_run_named_after_the_date_is_found_again(run: Start, tmp_path: Path) -> None:
    source = """
def loop():
    print(ray.train.get_context().get_experiment_name(), ray.train.get_checkpoint() is not None)
    save({}, "x")
run = ray.train.RunConfig(name=f"run-{os.getpid()}", storage_path=STORAGE)
ray.train.torch.TorchTrainer(loop, run_config=run).fit()
ray.train.torch.TorchTrainer(loop).fit()
print(sorted(os.listdir(STORAGE)))
"""
    (first,) = well(run(source, ranks=1))
    (second,) = well(run(source, ranks=1, generation=2))
    named, unnamed, listed = first.out.splitlines()
    assert named.startswith("run-") and named.endswith(" False")
    assert unnamed == "ray_train_run-j False"
    assert second.out.splitlines() == [named.replace("False", "True"), "ray_train_run-j True", listed]
    assert (tmp_path / "job" / "ray_train_run-j").is_dir()


def test_an_error_of_the_loop_is_the_jobs_whatever_the_program_catches(run: Start) -> None:
    source = "\ndef loop():\n    ray.train.collective.barrier()\n    raise KeyError('lost')\n"
    source += "try:\n" + "".join(f"    {line}\n" for line in fit().strip().splitlines())
    zero, one = run(source + "except BaseException as error:\n    assert not isinstance(error, Exception)\n    raise\n")
    failed = [each for each in (zero, one) if each.of(Failed)]
    assert failed
    for each in failed:
        assert each.error == "KeyError: 'lost'"
        lines = each.of(Failed)[0].error.traceback.splitlines()
        assert sum(line.startswith("  File") for line in lines) == 1, lines


CALLBACK = """
class Told(ray.train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print("reported", metrics, checkpoint)
    def after_exception(self, run_context, worker_exceptions):
        print("raised", worker_exceptions)

def loop():
    ray.train.report({"rank": ray.train.get_context().get_world_rank()})
    ray.train.collective.barrier()
    raise ValueError("bad")
"""


def test_user_callbacks_are_called(run: Start) -> None:
    zero, one = run(CALLBACK + fit(run="callbacks=[Told()]"))
    assert zero.out.splitlines()[0] == "reported [{'rank': 0}, {'rank': 1}] None"
    raised = [line for each in (zero, one) for line in each.out.splitlines() if line.startswith("raised")]
    assert raised and set(raised) <= {f"raised {{{rank}: ValueError('bad')}}" for rank in (0, 1)}


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (fit(ranks="4"), "ScalingConfig(num_workers=4), but the job runs on 2 ranks"),
        (fit(ranks="(3, 8)"), "ScalingConfig(num_workers=(3, 8)), but the job runs on 2 ranks"),
        (fit("datasets={'train': object()}"), "datasets=['train']: Ray Data runs on a Ray cluster"),
    ],
)
def test_what_the_job_is_not_is_refused_as_wrong_input(run: Start, end: str, said: str) -> None:
    zero, _ = run("\ndef loop():\n    print('never')\n" + end)
    assert zero.error.startswith(f"InputError: {said}")
    assert zero.of(Failed)[0].error.error_class is ErrorClass.INPUT
    assert "never" not in zero.out


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("ray.train.get_dataset_shard('train')", "whose data Ray Data prepares beforehand (data.prepare)"),
        ("ray.put(1)", "ray.put() needs a Ray cluster"),
        ("ray.remote(save).remote()", "A remote function needs a Ray cluster"),
        ("ray.train.report({'loss': torch.ones(1)})", "metrics are plain numbers, not tensors"),
        ("ray.train.report({}, ray.train.Checkpoint('/tmp'), validation=True)", "validation runs as a Ray task"),
        ("[save({}, 'x', checkpoint_dir_name='same') for _ in range(2)]", "'same' is that of a checkpoint already"),
    ],
)
def test_what_needs_a_cluster_is_refused_where_it_is_called(run: Start, does: str, said: str) -> None:
    (zero,) = run(f"\ndef loop():\n    {does}\n" + fit(ranks="1"), ranks=1)
    assert said in zero.error


def test_a_program_that_counts_on_more_retries_than_the_job_allows_is_told(run: Start) -> None:
    source = "\ndef loop():\n    pass\n" + fit(ranks="1", run="failure_config=ray.train.FailureConfig(max_failures=3)")
    (told,) = well(run(source, ranks=1))
    assert "max_failures=3" in told.err and "recovery.budgets.user_error" in told.err
    (untold,) = well(run(source, ranks=1, generation=2, restarts=3))
    assert not untold.err


PREPARED = """
def loop():
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(rank)
    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    data = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2))
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(data))
    optimizer = torch.optim.Adam(model.parameters())
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
    print(type(model).__name__, type(loader.sampler).__name__, [float(p.sum()) for p in model.parameters()])
torch.manual_seed(1234)
"""


def test_models_and_loaders_are_prepared_and_steps_counted(run: Start) -> None:
    zero, one = well(run(PREPARED + fit()))
    assert zero.out == one.out and zero.out.startswith("DistributedDataParallel DistributedSampler")
    assert zero.of(Done)[0].step == 2
