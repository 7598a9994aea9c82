"""The Python of a job: what its zygote gets to see, and what is said of one that will not do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.interpreter import JobPython, PythonUnfit
from tests.support.packages.tiny_packages import flavours

UNDERNEATH = os.path.realpath(sys.executable)
"""The Python that this environment was made from: it has nothing installed."""


def job_python(tmp_path: Path, notes: list[tuple[str, dict[str, Any]]] | None = None, **parts: Any) -> JobPython:
    """That of a job on this node."""
    heard = notes if notes is not None else []
    (tmp_path / "scratch").mkdir(exist_ok=True)
    config = AgentConfig("job", "name", "node", "node-1", "127.0.0.1", "supervisor", "", "", **parts)
    return JobPython(config, tmp_path / "scratch", tmp_path / "log", lambda kind, data: heard.append((kind, data)))


@pytest.fixture(autouse=True)
def venvs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment outlives its test."""
    monkeypatch.setenv("REGROUP_VENVS_DIR", str(tmp_path / "venvs"))


def env_of(tmp_path: Path) -> dict[str, str]:
    """A folder as the only index."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(flavours(tmp_path / "wheels"))}


def run(python: JobPython, tmp_path: Path, code: str) -> str:
    """What a program prints there."""
    done = subprocess.run(
        [python.executable, "-c", code],
        env=python.environment(),
        cwd=tmp_path / "scratch",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


async def test_the_platforms_needs_nothing(tmp_path: Path) -> None:
    python = job_python(tmp_path)
    assert await python.made() == {}
    assert python.executable == sys.executable
    await python.close()


async def test_one_of_requirements_sees_of_ours_only_the_workers(tmp_path: Path) -> None:
    notes: list[tuple[str, dict[str, Any]]] = []
    env = {**env_of(tmp_path), "PYTHONPATH": "/theirs"}
    python = job_python(tmp_path, notes, requirements=("flavour==1.0",), base="none", env=env)
    told = await python.made()
    assert told["installed"] and told["seconds"] > 0
    code = """
import flavour, os, shutil, sys
import regroup.workers.zygote.zygote, regroup.workers.contract.messages
found = []
for name in ("ray", "pydantic", "torch", "regroup.service", "regroup.api"):
    try:
        __import__(name)
        found.append(name)
    except ImportError:
        pass
print(flavour.VERSION, found, "/theirs" in sys.path, shutil.which("python") == sys.executable)
"""
    assert run(python, tmp_path, code) == "1.0 [] True True"
    assert next(data["message"] for kind, data in notes if kind == "progress").endswith("on node-1")
    await python.close()


async def test_a_second_job_finds_it_installed(tmp_path: Path) -> None:
    wanted = {"requirements": ("flavour==1.0",), "base": "none", "env": env_of(tmp_path)}
    first, second = job_python(tmp_path, **wanted), job_python(tmp_path, **wanted)
    assert (await first.made())["installed"] and not (await second.made())["installed"]
    assert first.executable == second.executable
    await first.close()
    await second.close()


async def test_one_without_what_the_job_needs_is_refused_and_says_what(tmp_path: Path) -> None:
    python = job_python(
        tmp_path, requirements=("flavour==1.0",), base="none", env=env_of(tmp_path), needs=("torch", "os")
    )
    with pytest.raises(PythonUnfit, match=r"\(Python 3\..*\) has no torch, .* add it to environment\.req"):
        await python.made()
    await python.close()


async def test_an_interpreter_that_is_not_there_is_named_with_its_node(tmp_path: Path) -> None:
    python = job_python(tmp_path, interpreter="/opt/nowhere/bin/python")
    with pytest.raises(PythonUnfit, match=r"no Python /opt/nowhere/bin/python on node .*: No such file"):
        await python.made()
    await python.close()


async def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    python = job_python(tmp_path, interpreter="/bin/true")
    with pytest.raises(PythonUnfit, match=r"/bin/true on node .* does not answer as a Python does"):
        await python.made()
    await python.close()


async def test_one_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\necho \'{"version": [3, 8, 1], "missing": []}\'\n')
    old.chmod(0o755)
    python = job_python(tmp_path, interpreter=str(old))
    with pytest.raises(PythonUnfit, match=r"is Python 3\.8\.1; ranks need 3\.11 or newer"):
        await python.made()
    await python.close()


async def test_an_interpreter_of_the_node_is_taken_as_it_is(tmp_path: Path) -> None:
    python = job_python(tmp_path, interpreter=UNDERNEATH)
    assert (await python.made())["installed"] is False
    assert run(python, tmp_path, "import sys, regroup.workers; print(sys.prefix == sys.base_prefix)") == "True"
    await python.close()
