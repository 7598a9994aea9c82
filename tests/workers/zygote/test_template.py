"""The template of a node: one process imports, and the zygotes of its standby agents are its forks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from regroup.workers.os import procfs
from regroup.workers.zygote import template_client
from regroup.workers.zygote.client import ZygoteDied, ZygoteLink
from tests.support.machines.other_users import FIRST_USER
from tests.support.machines.zygote_templates import kill_templates, templates

SOURCE = """
import os, subprocess
def draw(args, fds):
    import numpy
    return {"value": float(numpy.random.rand()), "parent": os.getppid()}
"""


@pytest.fixture(autouse=True)
def end_templates() -> Iterator[None]:
    yield
    kill_templates()


@pytest.fixture
async def links() -> AsyncIterator[list[ZygoteLink]]:
    """Zygotes that are closed after the test."""
    opened: list[ZygoteLink] = []
    yield opened
    for link in opened:
        link.close()


def ensure(tmp_path: Path, *preload: str) -> str:
    (tmp_path / "drawn.py").write_text(SOURCE)
    env = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    return template_client.ensure_template("n0", env, sys.executable, preload, tmp_path / "log", tmp_path)


async def fork(address: str, tmp_path: Path, links: list[ZygoteLink]) -> ZygoteLink:
    link = ZygoteLink.fork_from(address, tmp_path / "log", tmp_path)
    assert link is not None
    links.append(link)
    link.serve(lambda *_: None, lambda: None, tmp_path / "log", tmp_path, None)
    link.prepare([], {})
    return link


async def test_zygotes_of_a_node_are_forks_of_one_template(tmp_path: Path, links: list[ZygoteLink]) -> None:
    pids: list[int] = []
    for _ in range(2):
        link = await fork(ensure(tmp_path, "json"), tmp_path, links)
        pids.append((await link.ready())["pid"])
        assert link.process.pid == pids[-1]
    (template,) = templates()
    assert set(pids) <= set(procfs.children(template)) and len(set(pids)) == 2


async def test_random_numbers_of_two_zygotes_differ(tmp_path: Path, links: list[ZygoteLink]) -> None:
    address = ensure(tmp_path, "numpy")
    drawn = [await (await fork(address, tmp_path, links)).run_task("drawn:draw", {}) for _ in range(2)]
    assert drawn[0]["value"] != drawn[1]["value"]
    assert [each["parent"] for each in drawn] == [link.process.pid for link in links]


async def test_a_closed_or_killed_zygote_ends_and_the_template_serves_on(
    tmp_path: Path, links: list[ZygoteLink]
) -> None:
    address = ensure(tmp_path, "json")
    closed, killed = await fork(address, tmp_path, links), await fork(address, tmp_path, links)
    for link in (closed, killed):
        await link.ready()
    closed.close()
    closed.process.wait()
    killed.process.kill()
    killed.process.wait()
    with pytest.raises(ZygoteDied):
        killed.prepare([], {})
        await killed.ready()
    assert (await (await fork(address, tmp_path, links)).ready())["launcher"] == "fork"


async def test_a_template_with_threads_forks_nothing_and_names_them(tmp_path: Path, links: list[ZygoteLink]) -> None:
    source = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    (tmp_path / "threaded.py").write_text(source)
    link = await fork(ensure(tmp_path, "threaded"), tmp_path, links)
    with pytest.raises(ZygoteDied):
        await link.ready()
    assert link.process.pid == 0
    assert "started 1 thread(s)" in (tmp_path / "log").read_text()


def test_a_template_ends_with_its_owner(tmp_path: Path) -> None:
    program = f"""
import os, sys
from pathlib import Path
from regroup.workers.zygote import template_client
folder = Path({str(tmp_path)!r})
template_client.ensure_template("n0", dict(os.environ), sys.executable, ["json"], folder / "log", folder)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as owner:
        deadline = time.monotonic() + 20
        while not (found := templates()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        owner.send_signal(signal.SIGKILL)
    while not all(procfs.is_zombie(pid) for pid in found):
        assert time.monotonic() < deadline, "the template outlives its owner"
        time.sleep(0.02)


async def test_without_a_template_no_zygote_is_forked(tmp_path: Path) -> None:
    assert ZygoteLink.fork_from("\0regroup-no-such-template", tmp_path / "log", tmp_path) is None


@pytest.mark.users
async def test_a_template_of_another_user_gets_no_request(tmp_path: Path) -> None:
    """Bind the name first as another user, who would receive the jobs of this one."""
    address = f"\0regroup-template-test-{os.getpid()}"
    listens = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
    listens += "s.bind(chr(0) + sys.argv[1]); s.listen(); print('ready', flush=True); c, _ = s.accept(); "
    listens += "print(len(c.recv(100)), flush=True)"
    drops = f"import os, socket; os.setgroups([]); os.setgid({FIRST_USER}); os.setuid({FIRST_USER}); "
    command = [sys.executable, "-c", drops + listens, address[1:]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert ZygoteLink.fork_from(address, tmp_path / "log", tmp_path) is None
    assert process.communicate(timeout=10)[0] == "0\n", "the connection was closed without a request"
