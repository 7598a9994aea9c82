"""Processes that one zygote forks: their random numbers, files and connections are their own, as under torchrun."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.zygote.client import ZygoteLink

Draw = Callable[..., Awaitable[list[dict[str, Any]]]]
"""Starts a zygote with these preloads and returns what a function draws in three forks of it."""

PRIVATE_GENERATORS = """
import random, numpy
free = {"python": random.Random(), "numpy": numpy.random.default_rng(), "legacy": numpy.random.RandomState(),
        "reseeded": random.Random(7)}
free["reseeded"].seed()
fixed = {"python": random.Random(7), "numpy": numpy.random.default_rng(7), "legacy": numpy.random.RandomState(7)}
def draw(args, fds):
    return {kind: {name: float(each.random_sample() if name == "legacy" else each.random())
                   for name, each in generators.items()}
            for kind, generators in (("free", free), ("fixed", fixed))}
"""
OWN_GENERATORS = """
import os, random, secrets, tempfile, uuid
import numpy.random
def draw(args, fds):
    import multiprocessing
    return {"python": random.random(), "numpy": float(numpy.random.random()), "uuid1": str(uuid.uuid1()),
            "uuid4": str(uuid.uuid4()), "secret": secrets.token_hex(), "folder": tempfile.mktemp(),
            "key": bytes(multiprocessing.current_process().authkey).hex(),
            "pid": os.getpid(), "new": float(numpy.random.default_rng().random())}
"""
SEEDS = """
import random, numpy
random.seed(7)
numpy.random.seed(7)
first = random.random()
def draw(args, fds):
    return {"python": random.random(), "numpy": float(numpy.random.random())}
"""
FILES = """
import os, socket
numbers = open("numbers.txt", "rb", buffering=0)
first = numbers.readline()
log = open("log.txt", "w")
log.write("imported\\n")
ours, peer = socket.socketpair()
reader, writer = os.pipe()
def draw(args, fds):
    opened = [open(f"mine-{os.getpid()}-{n}", "w") for n in range(8)]
    try:
        ours.send(b"lost?")
        sent = "sent"
    except OSError as error:
        sent = type(error).__name__
    read = os.read(reader, 8).decode()
    line = numbers.readline().decode().strip()
    log.write("forked\\n")
    log.flush()
    return {"line": line, "sent": sent, "read": read, "files": [each.tell() for each in opened]}
"""
SERVERS = """
import multiprocessing
context = multiprocessing.get_context("spawn")
lock = context.Lock()
def draw(args, fds):
    import os
    from multiprocessing.resource_tracker import _resource_tracker
    mine = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]
    with context.Lock():
        return {"tracker": _resource_tracker._pid, "taken": _resource_tracker._fd in mine}
"""
TORCH = """
import torch
def draw(args, fds):
    return {"seed": torch.initial_seed(), "number": float(torch.rand(()))}
"""


@pytest.fixture
async def draw(tmp_path: Path) -> AsyncIterator[Draw]:
    opened: list[ZygoteLink] = []

    async def start(source: str, preload: Sequence[str] = ("numpy",)) -> list[dict[str, Any]]:
        (tmp_path / "preloaded.py").write_text(source)
        environment: Mapping[str, str] = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        }
        link = ZygoteLink.start(sys.executable, environment, tmp_path / "zygote.log", tmp_path)
        opened.append(link)
        link.prepare([*preload, "preloaded"], {})
        assert (await link.ready())["launcher"] == "fork"
        return [await link.run_task("preloaded:draw", {}) for _ in range(3)]

    yield start
    for link in opened:
        link.close()
        link.process.wait()


def different(drawn: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({each[name] for each in drawn}) == len(drawn)


async def test_every_process_draws_numbers_of_its_own(draw: Draw) -> None:
    drawn = await draw(OWN_GENERATORS)
    assert [name for name in drawn[0] if not different(drawn, name)] == []


async def test_generators_of_modules_differ_unless_the_module_seeded_them(draw: Draw) -> None:
    drawn = await draw(PRIVATE_GENERATORS)
    assert [name for name in drawn[0]["free"] if not different([each["free"] for each in drawn], name)] == []
    assert drawn[0]["fixed"] == drawn[1]["fixed"] == drawn[2]["fixed"]


async def test_what_a_module_seeds_while_it_is_imported_is_alike_in_all_processes(draw: Draw) -> None:
    import random

    import numpy as np

    drawn = await draw(SEEDS)
    expected = random.Random(7)
    expected.random()
    assert drawn == [{"python": expected.random(), "numpy": float(np.random.RandomState(7).random_sample())}] * 3


async def test_files_of_modules_have_a_position_in_each_process_and_connections_are_closed(
    draw: Draw, tmp_path: Path
) -> None:
    (tmp_path / "numbers.txt").write_text("".join(f"{number}\n" for number in range(9)))
    assert await draw(FILES) == [{"line": "1", "sent": "BrokenPipeError", "read": "", "files": [0] * 8}] * 3
    assert (tmp_path / "log.txt").read_text() == "imported\nforked\n"


async def test_a_process_starts_its_own_resource_tracker(draw: Draw) -> None:
    drawn = await draw(SERVERS)
    assert different(drawn, "tracker")
    assert [each["taken"] for each in drawn] == [False] * 3


async def test_torchs_generator_differs_unless_a_module_seeded_it(draw: Draw) -> None:
    assert different(drawn := await draw(TORCH, ["torch"]), "seed") and different(drawn, "number")
    seeded = await draw(f"{TORCH}\ntorch.manual_seed(7)\n", ["torch"])
    assert seeded[0] == seeded[1] == seeded[2] and seeded[0]["seed"] == 7
