"""Run the tests of the workers with the oldest and the newest supported torch, in environments of their own.

`python .ci/torch_versions.py [VERSION …]`. The first run installs each version in `build/torch-VERSION`, with the other
packages of constraints.txt. A build of torch for CUDA takes about 6 GB there; it also runs on a CPU.
"""

import argparse
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("2.11.0", "2.14.1")
"""Oldest and newest. Everything else runs on the version of constraints.txt."""
_TESTS = ("tests/workers",)
_STAMP = ".complete"


def main(arguments: Sequence[str] | None = None) -> int:
    """Install and test each version; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), help=f"default: {' '.join(VERSIONS)}")
    given = parser.parse_args(arguments)
    codes: list[int] = []
    for version in given.versions:
        environment = ROOT / "build" / f"torch-{version}"
        if not (environment / _STAMP).exists():
            _install(environment, version)
        print(f"torch-versions: tests of the workers with torch {version}", flush=True)
        command = [
            environment / "bin/python", "-m", "pytest", "-m", "not slow", "-n", "3", "--dist", "worksteal",
            "-p", "no:cacheprovider", *_TESTS,
        ]  # fmt: skip
        codes.append(subprocess.run(command, cwd=ROOT, check=False).returncode)
        print(f"torch-versions: torch {version}: {'passed' if codes[-1] == 0 else 'FAILED'}", flush=True)
    return next((code for code in codes if code), 0)


def _install(environment: Path, version: str) -> None:
    print(f"torch-versions: installing torch {version} in {environment}", flush=True)
    venv.create(environment, with_pip=True, clear=True)
    constraints = environment / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in lines if not line.startswith("torch==")))
    pip = [environment / "bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, f"torch=={version}"], check=True)
    subprocess.run([*pip, "--constraint", constraints, *_requirements(), f"torch=={version}"], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "regroup-tree.pth").write_text(f"{ROOT}\n")
    (environment / _STAMP).touch()


def _requirements() -> list[str]:
    """Return what regroup and its tests need, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = ("worker", "data", "ray-train", "s3", "plots", "dev")
    lines = [*project["dependencies"], *(line for name in names for line in extras[name])]
    return [line for line in lines if not line.startswith(("torch", "regroup["))]


if __name__ == "__main__":
    sys.exit(main())
