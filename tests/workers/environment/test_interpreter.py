"""The Python of a job: packages that its zygote sees, and errors for an unsuitable interpreter."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.interpreter import JobPython, PythonUnfit
from tests.support.packages.tiny_packages import flavours

BASE_PYTHON = os.path.realpath(sys.executable)
"""The Python that this environment was created from. It has no packages."""


def job_python(tmp_path: Path, notes: list[tuple[str, dict[str, Any]]] | None = None, **parts: Any) -> JobPython:
    """Return the Python of a job on this node."""
    received = notes if notes is not None else []
    (tmp_path / "scratch").mkdir(exist_ok=True)
    config = AgentConfig("job", "name", "node", "node-1", "127.0.0.1", "supervisor", "", "", **parts)
    return JobPython(config, tmp_path / "scratch", tmp_path / "log", lambda kind, data: received.append((kind, data)))


@pytest.fixture(autouse=True)
def venvs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the environments of a test in its own folder."""
    monkeypatch.setenv("REGROUP_VENVS_DIR", str(tmp_path / "venvs"))


def env_of(tmp_path: Path) -> dict[str, str]:
    """Return variables that make a folder the only source of packages."""
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(flavours(tmp_path / "wheels"))}


def run(python: JobPython, tmp_path: Path, code: str) -> str:
    """Return the output of a program in that Python."""
    done = subprocess.run(
        [python.executable, "-c", code],
        env=python.environment(),
        cwd=tmp_path / "scratch",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


async def test_the_platforms_python_needs_no_preparation(tmp_path: Path) -> None:
    python = job_python(tmp_path)
    assert await python.prepare() == {}
    assert python.executable == sys.executable
    await python.close()


async def test_an_environment_sees_of_regroup_only_the_workers(tmp_path: Path) -> None:
    notes: list[tuple[str, dict[str, Any]]] = []
    env = {**env_of(tmp_path), "PYTHONPATH": "/job"}
    python = job_python(tmp_path, notes, requirements=("flavour==1.0",), base="none", env=env)
    description = await python.prepare()
    assert description["installed"] and description["seconds"] > 0
    code = """
import flavour, os, shutil, sys
import regroup.workers.zygote.zygote, regroup.workers.contract.messages
seen = []
for name in ("ray", "pydantic", "torch", "regroup.service", "regroup.api"):
    try:
        __import__(name)
        seen.append(name)
    except ImportError:
        pass
print(flavour.VERSION, seen, "/job" in sys.path, shutil.which("python") == sys.executable)
"""
    assert run(python, tmp_path, code) == "1.0 [] True True"
    assert next(data["message"] for kind, data in notes if kind == "progress").endswith("on node-1")
    await python.close()


async def test_a_second_job_uses_the_same_environment(tmp_path: Path) -> None:
    parts = {"requirements": ("flavour==1.0",), "base": "none", "env": env_of(tmp_path)}
    first, second = job_python(tmp_path, **parts), job_python(tmp_path, **parts)
    assert (await first.prepare())["installed"] and not (await second.prepare())["installed"]
    assert first.executable == second.executable
    await first.close()
    await second.close()


async def test_an_environment_without_a_needed_package_is_refused(tmp_path: Path) -> None:
    python = job_python(
        tmp_path, requirements=("flavour==1.0",), base="none", env=env_of(tmp_path), needs=("torch", "os")
    )
    with pytest.raises(PythonUnfit, match=r"\(Python 3\..*\) has no torch, .* add it to environment\.req"):
        await python.prepare()
    await python.close()


async def test_a_missing_interpreter_is_named_with_its_node(tmp_path: Path) -> None:
    python = job_python(tmp_path, interpreter="/opt/nowhere/bin/python")
    with pytest.raises(PythonUnfit, match=r"no Python /opt/nowhere/bin/python on node .*: No such file"):
        await python.prepare()
    await python.close()


async def test_a_program_other_than_python_is_refused(tmp_path: Path) -> None:
    python = job_python(tmp_path, interpreter="/bin/true")
    with pytest.raises(PythonUnfit, match=r"/bin/true on node .* does not run Python code"):
        await python.prepare()
    await python.close()


async def test_a_python_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\necho \'{"version": [3, 8, 1], "missing": []}\'\n')
    old.chmod(0o755)
    python = job_python(tmp_path, interpreter=str(old))
    with pytest.raises(PythonUnfit, match=r"is Python 3\.8\.1; ranks need 3\.11 or newer"):
        await python.prepare()
    await python.close()


async def test_an_interpreter_of_the_node_is_used_as_it_is(tmp_path: Path) -> None:
    python = job_python(tmp_path, interpreter=BASE_PYTHON)
    assert (await python.prepare())["installed"] is False
    assert run(python, tmp_path, "import sys, regroup.workers; print(sys.prefix == sys.base_prefix)") == "True"
    await python.close()
