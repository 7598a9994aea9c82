"""Test the workers with the oldest and the newest supported torch and Python, in environments of their own.

`python .ci/torch_versions.py [TORCH …]`. The first run installs each environment below `build/versions`, with the other
packages of constraints.txt. A build of torch for CUDA takes about 6 GB there; it also runs on a CPU.

The bundle of `make gpu` is tried as well: a bare Python with torch installs it without a network and runs the first
stage of `make gpu --dry-run`.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dist import ROOT, find_interpreter, uv


@dataclass(frozen=True)
class Versions:
    """Versions of torch and Python that are tested together."""

    torch: str
    python: str

    @property
    def environment(self) -> Path:
        """Folder of the virtual environment."""
        return _FOLDER / f"torch-{self.torch}-python-{self.python}"


_FOLDER = ROOT / "build/versions"
TESTED = (Versions("2.11.0", "3.11"), Versions("2.14.1", "3.13"))
"""Oldest and newest. Everything else runs on the versions of constraints.txt."""
BARE = Versions("2.11.0", "3.12")
"""The machine of `make gpu-bundle`."""
_CHOSEN_BY_TORCH = ("torch", "setuptools")
"""Packages without a constraint: each version of torch sets its own limits."""
_TESTS = ("tests/workers",)
_STAMP = ".complete"


def main(arguments: Sequence[str] | None = None) -> int:
    """Install and test the chosen versions; return 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", nargs="*", help="versions of torch; default: oldest and newest, and the bundle")
    chosen = parser.parse_args(arguments).torch
    unknown = set(chosen) - {each.torch for each in TESTED}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: tested are {', '.join(each.torch for each in TESTED)}")
    results = {
        f"torch {each.torch}, Python {each.python}": _test_workers(each)
        for each in TESTED
        if not chosen or each.torch in chosen
    }
    if not chosen:
        results[f"bundle, torch {BARE.torch}, Python {BARE.python}"] = _test_bundle(BARE)
    for name, is_passed in results.items():
        print(f"torch-versions: {name}: {'passed' if is_passed else 'FAILED'}", flush=True)
    return 0 if all(results.values()) else 1


def _test_workers(versions: Versions) -> bool:
    python = _environment(versions, _requirements())
    (packages,) = versions.environment.glob("lib/python*/site-packages")
    (packages / "regroup-tree.pth").write_text(f"{ROOT}\n")
    print(f"torch-versions: tests of the workers with torch {versions.torch}, Python {versions.python}", flush=True)
    command = [python, "-m", "pytest", "-m", "not slow", "-n", "3", "--dist", "worksteal", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *_TESTS], cwd=ROOT, check=False).returncode == 0


def _test_bundle(versions: Versions) -> bool:
    """Install the bundle with a bare Python in a namespace without a network, and run the first stage there."""
    python = _environment(versions, [])
    bundle, machine = ROOT / "build/gpu-bundle", _FOLDER / "machine"
    packed = [sys.executable, "-m", "benchmarks.gpu.bundle", "--python", versions.python, "--directory", bundle]
    subprocess.run(packed, cwd=ROOT, check=True)
    script = f"""
        set -eu
        ip link set lo up
        sh {bundle}/bootstrap.sh {machine}
        cd {machine}/code
        PYTHONPATH={machine}/code:{machine}/site python3 -m benchmarks.gpu --dry-run --only smoke
    """
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables["PATH"] = f"{python.parent}:{variables['PATH']}"
    print(f"torch-versions: bundle with torch {versions.torch}, Python {versions.python}", flush=True)
    return subprocess.run(["unshare", "--net", "sh", "-c", script], env=variables, check=False).returncode == 0


def _environment(versions: Versions, packages: Sequence[str]) -> Path:
    """Install torch and packages, unless the environment exists; return its Python."""
    python = versions.environment / "bin/python"
    if (versions.environment / _STAMP).exists():
        return python
    interpreter = find_interpreter(versions.python)
    if interpreter is None:
        sys.exit(f"torch-versions: Python {versions.python} is not on this machine; install it (pyenv, or a package)")
    print(f"torch-versions: installing torch {versions.torch} in {versions.environment}", flush=True)
    uv("venv", "--quiet", "--clear", "--seed", "--python", interpreter, versions.environment)
    constraints = versions.environment / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in lines if line.partition("==")[0] not in _CHOSEN_BY_TORCH))
    chosen = ("--constraint", constraints, f"torch=={versions.torch}", *packages)
    uv("pip", "install", "--quiet", "--python", python, *chosen)
    (versions.environment / _STAMP).touch()
    return python


def _requirements() -> list[str]:
    """Return what regroup and its tests need, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = ("worker", "data", "ray-train", "s3", "plots", "examples", "dev")
    lines = [*project["dependencies"], *(line for name in names for line in extras[name])]
    return [line for line in lines if not line.startswith(("torch", "regroup["))]


if __name__ == "__main__":
    sys.exit(main())
