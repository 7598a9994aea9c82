"""The distributions of this tree, an environment that has the wheel, and a project that it must not disturb."""

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("api", "service", "workers")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output.

    Raises:
        AssertionError: the command failed; the error shows the end of its output.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **environment}, capture_output=True, text=True, check=False, timeout=240
    )
    output = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, f"{' '.join(map(str, command))[:300]}\n{output}"
    return done


@dataclass(frozen=True)
class Distributions:
    """The files that a release publishes."""

    sdist: Path
    wheel: Path
    """Built from the sdist."""


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The distributions of this tree, built as `make dist` does."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, ".ci/dist.py", "build", "--directory", folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Distributions(sdist, wheel)


@pytest.fixture(scope="session")
def wheel(distributions: Distributions) -> Path:
    """The wheel of this tree."""
    return distributions.wheel


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a fresh environment that holds the wheel; third-party packages come from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    # A path line adds the packages of this environment, but not its own editable install of regroup.
    (site / "third-party.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    assert run(python, "-c", "import regroup; print(regroup.__file__)", cwd=folder).stdout.startswith(str(site))
    return folder


@pytest.fixture
def neighbour(tmp_path: Path) -> Path:
    """A user's project whose own packages have the names of the folders."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'the user'\n")
    return tmp_path
