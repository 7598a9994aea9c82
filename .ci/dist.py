"""Build the distributions of regroup, and try them in clean environments.

`python .ci/dist.py build` writes the sdist and the wheel to `dist/`. The command `check` installs the wheel, too.
The command `test` runs tests of the control plane on each supported Python other than the current one.
The check needs a package index, the packages `build` and `uv`, and about 500 MiB of temporary disk space.
"""

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13")
"""Versions that the classifiers of `pyproject.toml` name. The check tries those that this machine has."""
NOT_INSTALLED = ("torch", "tokenizers", "pyarrow", "matplotlib", "pytest")
"""Packages of the extras: the base installation must not install any of them."""
SOURCES = ("api", "service", "workers", "regroup", "console/dist")
PAGES = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

TESTS = ("tests/service/domain", "tests/service/spec", "tests/service/store", "tests/api/web")
"""Tests of the control plane for each Python. They need none of the heavy extras, and take a minute on two cores."""
_MARKS = "not slow and not postgres and not redis and not prometheus"
_TEST_PACKAGES = (
    *("pytest", "pytest-asyncio", "pytest-xdist", "hypothesis", "schemathesis", "jsonschema", "moto[server]"),
    *("cryptography", "ipykernel", "matplotlib", "s3fs", "setuptools"),
)
_UV = (sys.executable, "-m", "uv", "--no-python-downloads", "--no-config")

_IMPORTS = f"""
import importlib.util, sys
import regroup, regroup.api.client, regroup.api.cli, regroup.service.spec
regroup.Job, regroup.submit
loaded = [name for name in ("ray", "numpy", *{NOT_INSTALLED!r}) if name in sys.modules]
found = [name for name in {NOT_INSTALLED!r} if importlib.util.find_spec(name)]
assert not loaded, f"the client imports {{loaded}}"
assert not found, f"the base installation installs {{found}}"
assert importlib.util.find_spec("regroup").origin.startswith(sys.prefix), regroup.__file__
"""


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel out of that sdist, from a copy of this tree; return both files.

    The copy keeps files of earlier builds out of the distributions. Their timestamps are the time of the last commit,
    so that equal sources give equal files.
    """
    with tempfile.TemporaryDirectory(prefix="regroup-dist-") as scratch:
        _build(_copy(Path(scratch)), folder, "--sdist")
        (sdist,) = folder.glob("regroup-*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        _build(Path(scratch) / sdist.name.removesuffix(".tar.gz"), folder, "--wheel")
    (wheel,) = folder.glob("regroup-*.whl")
    return sdist, wheel


def build_wheel_of_tree(folder: Path) -> Path:
    """Build the wheel from a copy of this tree, not from an sdist; return its file."""
    with tempfile.TemporaryDirectory(prefix="regroup-dist-") as scratch:
        _build(_copy(Path(scratch)), folder, "--wheel")
    (wheel,) = folder.glob("regroup-*.whl")
    return wheel


def check(wheel: Path) -> None:
    """Install the wheel with pip, and with uv on each supported Python of this machine; try the command line.

    Raises:
        SystemExit: an installation or a command failed; its output is on the terminal.
    """
    with tempfile.TemporaryDirectory(prefix="regroup-dist-") as scratch:
        folder = Path(scratch)
        with _stage("pip install"):
            environment = folder / "pip"
            venv.create(environment, with_pip=True)
            python = environment / "bin" / "python"
            _run(python, "-m", "pip", "install", "-qq", "--constraint", CONSTRAINTS, wheel)
            _run(python, "-m", "pip", "check")
            _try(environment)
        for version, interpreter in _interpreters():
            with _stage(f"uv pip install, Python {version}"):
                _try(_install(folder / f"uv-{version}", interpreter, wheel))
        with _stage("resolution of the extras"):
            for extra in _extras():
                target = ("--python", folder / "pip" / "bin" / "python", "--constraint", CONSTRAINTS)
                uv("pip", "install", "--quiet", "--dry-run", *target, f"regroup[{extra}] @ {wheel.as_uri()}")
        with _stage("regroup serve"):
            _serve(folder / "pip", folder / "state")


def test(wheel: Path) -> None:
    """Run `TESTS` of this tree on each supported Python of this machine other than the current one.

    Raises:
        SystemExit: an installation or a test failed; the output is on the terminal.
    """
    current = "{}.{}".format(*sys.version_info)
    with tempfile.TemporaryDirectory(prefix="regroup-dist-") as scratch:
        for version, interpreter in _interpreters():
            if version == current:
                continue
            with _stage(f"tests on Python {version}"):
                environment = _install(Path(scratch) / version, interpreter, wheel, *_TEST_PACKAGES)
                options = ("-q", "-n", "2", "-p", "no:cacheprovider", "-m", _MARKS)
                _run(environment / "bin" / "python", "-m", "pytest", *options, *TESTS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, then check or test as the command requires."""
    parser = argparse.ArgumentParser(description="Build the distributions of regroup, and try them.")
    parser.add_argument("command", choices=("build", "check", "test"))
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="folder of the files; emptied first")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.directory, ignore_errors=True)
    options.directory.mkdir(parents=True)
    with _stage("build"):
        sdist, wheel = build(options.directory)
    for path in (sdist, wheel):
        print(f"dist: {path}, {path.stat().st_size / 1e6:.2f} MB")
    if options.command == "check":
        check(wheel)
    if options.command == "test":
        test(wheel)


def _copy(folder: Path) -> Path:
    """Copy the sources of the distributions below `folder`, links as links; return the copy."""
    source = folder / "source"
    source.mkdir()
    _run(sys.executable, ".ci/console.py", "build")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PAGES:
        shutil.copy(ROOT / name, source / name)
    return source


def _extras() -> list[str]:
    """Return the names of all extras."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def _build(source: Path, folder: Path, kind: str) -> None:
    os.environ.setdefault("SOURCE_DATE_EPOCH", _commit_time())
    _run(sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", folder, source, is_quiet=True)


def _commit_time() -> str:
    """Return the time of the last commit in seconds since 1970; a fixed one if there is no history."""
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "1767225600"


def _install(environment: Path, interpreter: str, *packages: str | Path) -> Path:
    """Create a virtual environment with uv and install packages in it; return its folder."""
    uv("venv", "--quiet", "--python", interpreter, environment)
    target = ("--python", environment / "bin" / "python")
    uv("pip", "install", "--quiet", *target, "--constraint", CONSTRAINTS, *packages)
    uv("pip", "check", "--quiet", *target)
    return environment


def _try(environment: Path) -> None:
    """Run the command line and import the client, outside of this tree."""
    binaries = environment / "bin"
    _run(binaries / "python", "-c", _IMPORTS, cwd=environment)
    _run(binaries / "regroup", "--help", cwd=environment, is_quiet=True)
    shown = _run(binaries / "regroup", "--version", cwd=environment, is_quiet=True)
    print(f"dist: {environment.name}: {shown.strip()}")


def _serve(environment: Path, state_dir: Path) -> None:
    """Start a server with its local Ray, ask for its readiness and its console, and end both."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    regroup = environment / "bin" / "regroup"
    where = ("--state-dir", state_dir)
    # Without nodes for training: they need the worker extra.
    command = [regroup, "serve", *where, "--port", str(port), "--local-nodes", "0"]
    server = subprocess.Popen(command, cwd=environment, env=_environment())
    try:
        deadline_s = time.monotonic() + 120
        while not _is_ready(f"http://127.0.0.1:{port}/readyz"):
            if time.monotonic() > deadline_s or server.poll() is not None:
                sys.exit(f"dist: regroup serve was not ready within 120 s (exit code {server.poll()})")
            time.sleep(0.2)
        _try_console(f"http://127.0.0.1:{port}/console/")
    finally:
        server.terminate()
        server.wait(30)
        _run(regroup, "down", *where, cwd=environment)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _try_console(url: str) -> None:
    """Load the page of the console and the script that it names, as a browser does."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        page = answer.read().decode()
    script = re.search(r'<script [^>]*src="\./(assets/[^"]+\.js)"', page)
    if script is None:
        sys.exit(f"dist: {url} names no script: {page[:200]}")
    with urllib.request.urlopen(f"{url}{script[1]}", timeout=5) as answer:
        print(f"dist: the console is served: {script[1]}, {len(answer.read()) / 1e3:.0f} kB")


def _interpreters() -> Iterator[tuple[str, str]]:
    """Yield version and path of each supported Python that this machine has."""
    for version in PYTHONS:
        if found := find_interpreter(version):
            yield version, found
        else:
            print(f"dist: Python {version} is not on this machine; not tried")


def find_interpreter(version: str) -> str | None:
    """Return the path of this version of Python on this machine, or None."""
    command = [*_UV, "python", "find", "--no-project", version]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return found.stdout.strip()
    # uv does not search the versions of pyenv.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))), None)


def uv(*arguments: str | Path) -> None:
    """Run uv, without Pythons of its own; end this program if it fails."""
    _run(*_UV, *arguments)


def _environment() -> dict[str, str]:
    """Return the environment without the paths of this tree and of an active virtual environment."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def _run(*command: str | Path, cwd: Path = ROOT, is_quiet: bool = False) -> str:
    """Run a command to its end and return its output; print the output unless `is_quiet`, or if it fails."""
    to_text = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=cwd, env=_environment(), check=False, **to_text)
    if done.returncode != 0 or not is_quiet:
        print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        sys.exit(f"dist: failed with exit code {done.returncode}: {' '.join(map(str, command))[:200]}")
    return done.stdout


@contextlib.contextmanager
def _stage(name: str) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    print(f"dist: {name} took {time.monotonic() - started_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
