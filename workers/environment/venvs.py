"""Virtual environments of this node, found again by what is in them: made once, shared by jobs, never removed in use.

Each stands in a folder named after a hash, beside a lock file of that name: held exclusively while the folder is made
or removed, shared by everybody who uses it. A folder is complete once its marker is there, which is written last: what
a dead agent left behind is made anew. It is made in place, because console scripts hold the path of their interpreter.
Blocking.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

FOLDER_VARIABLE = "REGROUP_VENVS_DIR"
"""On a node: where its virtual environments are kept; below the folder of temporary files if not set."""
LIMIT_VARIABLE = "REGROUP_VENVS_MAX_BYTES"
"""On a node: how much those that no job uses may take."""
_LIMIT_BYTES = 30 * 2**30
_MARKER = "regroup.json"
_KEPT_S = 7 * 86400.0
_LOOK_S = 0.2


class VenvError(Exception):
    """This node cannot keep environments where it is told to."""


class Stopped(Exception):
    """Whoever waited for an environment does not want it any more."""


class Hold:
    """A complete environment, which stays as long as this is not released."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.path / "bin" / "python")

    def release(self) -> None:
        """It may be removed from now on, once it is the one that was used longest ago."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path / _MARKER)
        os.close(self._lock)


def node_folder() -> Path:
    """This node's folder of environments, shared by the jobs of one user and closed to others.

    Raises:
        VenvError: it is somebody else's, or cannot be made.
    """
    told = os.environ.get(FOLDER_VARIABLE)
    folder = Path(told) if told else Path(tempfile.gettempdir()) / f"regroup-venvs-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise VenvError(f"{folder} on node {platform.node()} is not ours: remove it, or set {FOLDER_VARIABLE}")
    except OSError as error:
        raise VenvError(f"{folder} on node {platform.node()}: {error.strerror}; set {FOLDER_VARIABLE}") from error
    return folder


def limit_bytes() -> int:
    """How much the environments of this node may take beyond those in use."""
    return int(os.environ.get(LIMIT_VARIABLE) or _LIMIT_BYTES)


def key_of(requirements: Sequence[str], base: str, settings: Mapping[str, str]) -> str:
    """The name of the environment with these requirements over this interpreter, and over its packages if that is the
    `base`. Order and repetition of requirements do not matter.

    Args:
        settings: what else decides what pip finds, e.g. the index.
    """
    python = [sys.version, sysconfig.get_config_var("SOABI"), platform.machine(), os.path.realpath(sys.executable)]
    below = _installed(sysconfig.get_path("purelib")) if base == "platform" else []
    lines = sorted({_normal(line) for line in requirements})
    said = json.dumps([1, lines, base, sorted(settings.items()), python, below])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def hold(
    folder: Path,
    key: str,
    make: Callable[[Path], None],
    is_stopped: Callable[[], bool] = lambda: False,
    on_wait: Callable[[], None] = lambda: None,
) -> Hold:
    """The environment called `key`, made by `make(path)` if it is not there; waits while another agent makes it.

    Raises:
        Stopped: `is_stopped` said so while it waited.
        BaseException: whatever `make` raised; what it had made by then is removed.
    """
    path = folder / key
    lock = _opened(path)
    try:
        while True:
            if _took(lock, fcntl.LOCK_SH):
                if (path / _MARKER).exists():
                    os.utime(path / _MARKER)
                    return Hold(path, lock)
                fcntl.flock(lock, fcntl.LOCK_UN)
            if is_stopped():
                raise Stopped
            if _took(lock, fcntl.LOCK_EX):
                if not (path / _MARKER).exists():
                    _make(path, make)
                fcntl.flock(lock, fcntl.LOCK_UN)
            else:
                on_wait()
                time.sleep(_LOOK_S)
    except BaseException:
        os.close(lock)
        raise


def tidy(folder: Path, most_bytes: int, now_s: float) -> list[str]:
    """Remove what nobody uses: what is torn, what was not used for a week, and then, until all together take no more
    than `most_bytes`, what was used longest ago. Returns the names.

    Args:
        now_s: Unix seconds.
    """
    found = sorted((_account(path), path) for path in folder.iterdir() if path.is_dir())
    total = sum(size for (_, size), _ in found)
    removed: list[str] = []
    for (used_s, size), path in found:
        if total <= most_bytes and now_s - used_s <= _KEPT_S:
            continue
        lock = _opened(path)
        try:
            if _took(lock, fcntl.LOCK_EX):
                (path / _MARKER).unlink(missing_ok=True)  # first: half an environment is none
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path.name)
                total -= size
        finally:
            os.close(lock)
    return removed


def canonical(name: str) -> str:
    """A package's name as every spelling of it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _make(path: Path, make: Callable[[Path], None]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    try:
        make(path)
        draft = path / f"{_MARKER}.draft"
        draft.write_text(json.dumps({"bytes": _size(path)}))
        draft.rename(path / _MARKER)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _account(path: Path) -> tuple[float, int]:
    """When an environment was used last and how large it is; a torn one was never used."""
    marker = path / _MARKER
    try:
        return marker.stat().st_mtime, int(json.loads(marker.read_text())["bytes"])
    except FileNotFoundError:
        return 0.0, 0


def _size(path: Path) -> int:
    sizes: dict[int, int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                stat = os.lstat(os.path.join(folder, name))  # noqa: PTH118  a torch has 20,000 files
                sizes[stat.st_ino] = stat.st_blocks * 512
    return sum(sizes.values())


def _installed(folder: str) -> list[str]:
    return sorted(f"{item.name}=={item.version}" for item in metadata.distributions(path=[folder]))


def _normal(requirement: str) -> str:
    """Without the spellings that mean the same: pip ignores case and kind of separator in the name."""
    name = re.match(r"[\w.-]*", requirement)
    assert name is not None
    return canonical(name[0]) + re.sub(r"\s+", "", requirement[name.end() :])


def _opened(path: Path) -> int:
    return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _took(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
