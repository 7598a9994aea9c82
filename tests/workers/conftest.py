"""Ranks without Ray: real processes, real gloo, real memory files; only the agent at the other end is a double."""

import importlib
import json
import math
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.codec import plain
from regroup.workers.contract.rank_config import (
    OptimizerConfig,
    ParallelConfig,
    RankConfig,
    ScheduleConfig,
    SnapshotConfig,
    TrainingConfig,
)
from regroup.workers.data.tokenize import prepare

HERE = Path(__file__).parent
FORKS = "REGROUP_TEST_FORKS"
"""Set where torch is imported and has one thread. The double of the agent is a fork there, and starts at once."""
NOTHING = {"source": "none"}
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box"]


Spread = tuple[str, dict[str, int], dict[str, Any]]
"""`data_parallel`, degrees by axis, and the rest of a strategy."""


@dataclass
class Generation:
    """Messages of one generation, and the exit codes of its ranks."""

    codes: list[int]
    messages: list[dict[str, Any]] = field(repr=False)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.of("StepRow")

    @property
    def losses(self) -> list[float]:
        return [row["loss"] for row in self.rows]

    @property
    def result(self) -> dict[str, Any]:
        return next(done["result"] for done in self.of("Done") if done["rank"] == 0)

    @property
    def errors(self) -> list[str]:
        return [f"{failed['error']['kind']}: {failed['error']['message']}" for failed in self.of("Failed")]


class Agent:
    """Starts generations in a process of its own, which keeps their buffers by the name of a memory."""

    def __init__(self, dataset: dict[str, Any]) -> None:
        self.dataset = dataset
        self.test = ""
        """The running test. Its memories are its own: names of several tests may be equal."""
        ours, self._join = _waiting.pop() if _waiting else _started()
        """The second waits until the double has ended."""
        ours.settimeout(120)
        self._lines = ours.makefile("rw")
        ours.close()

    def run(
        self,
        config: RankConfig,
        world_size: int,
        memory: str,
        *,
        restore: dict[str, Any] | None = None,
        generation: int = 1,
        entry: str = "regroup.workers.train.trainer:train",
        layout: dict[str, int] | None = None,
        verify_replicas: bool | None = None,
        **options: Any,
    ) -> Generation:
        axis = "dp_replicate" if config.parallel.data_parallel == "ddp" else "dp_shard"
        if verify_replicas is None:
            # As the spec's default: ranks of other training functions may hold different state on purpose.
            verify_replicas = entry.startswith("regroup.workers.train.trainer:")
        reply = self._request(
            {
                "do": "run",
                "config": plain(replace(config, verify_replicas=verify_replicas)),
                "world_size": world_size,
                "memory": memory,
                "restore": restore or NOTHING,
                "generation": generation,
                "entry": entry,
                "layout": layout or {axis: world_size},
                "dataset": self.dataset,
                **options,
            }
        )
        if "error" in reply:
            raise LookupError(reply["error"])
        return Generation(**reply)

    def spread(self, config: RankConfig, over: Spread, memory: str, **options: Any) -> Generation:
        """Run a generation on as many ranks as the layout has."""
        data_parallel, layout, options_of_layout = over
        config = replace(config, parallel=ParallelConfig(data_parallel, **options_of_layout))
        return self.run(config, math.prod(layout.values()), memory, layout=layout, **options)

    def task(self, target: str, args: dict[str, Any], **options: Any) -> dict[str, Any]:
        reply = self._request({"do": "task", "target": target, "args": args, **options})
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["ok"]

    def close(self) -> None:
        self._lines.close()
        self._join()

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        if "memory" in request:
            request = {**request, "memory": f"{self.test} {request['memory']}"}
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        return json.loads(self._lines.readline())


def _started() -> tuple[socket.socket, Callable[[], object]]:
    ours, theirs = socket.socketpair()
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(HERE / "agent_double.py"), str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env)
    theirs.close()
    return ours, partial(process.wait, timeout=30)


def _forked() -> tuple[socket.socket, Callable[[], object]]:
    """Fork a double that waits for its first request. It must be forked before any test starts a thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            if theirs.recv(1, socket.MSG_PEEK):
                warnings.resetwarnings()  # pytest's filters are not those of a rank
                os.environ["GLOO_SOCKET_IFNAME"] = "lo"
                sys.path.insert(0, str(HERE))
                importlib.import_module("agent_double").main(theirs)
        finally:
            os._exit(1)
    theirs.close()
    return ours, partial(os.waitpid, pid, 0)


_waiting = [_forked()] if os.environ.get(FORKS) else []


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A prepared token file of a few kilobytes of text, and a smaller one held out."""
    root = tmp_path_factory.mktemp("text")
    text = " ".join(WORDS[i * i % len(WORDS)] for i in range(900))
    (root / "train.txt").write_text(text)
    (root / "held-out.txt").write_text(text[1000:1200])
    return prepare(
        {
            "train": [str(root / "train.txt")],
            "validation": [str(root / "held-out.txt")],
            "tokenizer": "byte",
            "sequence": 16,
            "directory": str(root / "prepared"),
        },
        [],
    )


@pytest.fixture(scope="session")
def agent(dataset: dict[str, Any]) -> Iterator[Agent]:
    """Runs ranks."""
    double = Agent(dataset)
    yield double
    double.close()


@pytest.fixture(autouse=True)
def memories_of_the_test(request: pytest.FixtureRequest) -> None:
    """Separate the memories of tests, which run in any order."""
    agent = request.getfixturevalue("agent") if "agent" in request.fixturenames else None
    if isinstance(agent, Agent):
        agent.test = request.node.nodeid


@pytest.fixture(
    params=[pytest.param("cpu", marks=pytest.mark.cuda_twin), pytest.param("cuda:0", marks=pytest.mark.cuda)]
)
def device(request: pytest.FixtureRequest) -> str:
    """The CPU and, where there is one, a GPU: a test that uses this fixture runs on each."""
    return request.param


@pytest.fixture
def config() -> RankConfig:
    """A small job: 8 micro-batches a step, 4 steps."""
    return RankConfig(
        training=TrainingConfig(
            global_batch=16,
            micro_batch=2,
            sequence=16,
            steps=4,
            optimizer=OptimizerConfig(lr=0.01),
            schedule=ScheduleConfig(warmup_steps=1),
            validate_every=2,
        ),
        model={
            "family": "transformer",
            "dim": 24,
            "layers": 2,
            "heads": 2,
            "kv_heads": 1,
            "ffn_dim": 32,
            "vocab_size": None,
            "rope_theta": 10000.0,
            "norm_eps": 1e-5,
            "tie_embeddings": False,
        },
        seed=7,
        snapshot=SnapshotConfig(every_steps=1),
    )
