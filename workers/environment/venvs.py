"""Virtual environments of this node, stored under a hash of their contents. Jobs share them. Blocking.

Each environment is a folder with a lock file of the same name next to it. The lock is exclusive while the folder is
created or removed, and shared while a job uses it. The marker in the folder is written last: a folder without it was
left by a dead agent, and is created again. Environments are created in place, because console scripts contain the path
of their interpreter.
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

from packaging.utils import canonicalize_name

from regroup.workers.environment import uv_command

FOLDER_VARIABLE = "REGROUP_VENVS_DIR"
"""Variable of a node with the folder of its environments; default: a folder of the temporary files."""
LIMIT_VARIABLE = "REGROUP_VENVS_MAX_BYTES"
"""Variable of a node with the maximum size of its environments and of uv's cache."""
_LIMIT_BYTES = 30 * 2**30
_MARKER = "regroup.json"
_UNUSED_S = 7 * 86400.0
_POLL_S = 0.2


class VenvError(Exception):
    """An unusable folder of environments on this node."""


class InstallStopped(Exception):
    """The end of an installation, or of the wait for one, that the job no longer needs."""


class SharedVenv:
    """A complete environment. It cannot be removed before `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def python(self) -> str:
        """Path of the interpreter."""
        return str(self.path / "bin" / "python")

    def release(self) -> None:
        """Permit the removal of the environment. The time of this call counts as its last use."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path / _MARKER)
        os.close(self._lock)


def node_folder() -> Path:
    """Return this node's folder of environments, which the jobs of one user share and no other user can open.

    Raises:
        VenvError: The folder belongs to another user, or cannot be created.
    """
    configured = os.environ.get(FOLDER_VARIABLE)
    folder = Path(configured) if configured else Path(tempfile.gettempdir()) / f"regroup-venvs-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise VenvError(
                f"{folder} on node {platform.node()} is a link or belongs to another user: remove it, or set "
                f"{FOLDER_VARIABLE} to another folder"
            )
    except OSError as error:
        raise VenvError(
            f"{folder} on node {platform.node()}: {error.strerror}; set {FOLDER_VARIABLE} to another folder"
        ) from error
    return folder


def limit_bytes() -> int:
    """Return the maximum size of the environments of this node and of uv's cache."""
    return int(os.environ.get(LIMIT_VARIABLE) or _LIMIT_BYTES)


def key_of(requirements: Sequence[str], base: str, settings: Mapping[str, str]) -> str:
    """Return the name of an environment. The order and repetition of requirements do not matter.

    Args:
        requirements: Requirements in the syntax of pip.
        base: `platform` or `none`. With `platform` the packages of the platform are part of the name.
        settings: Further settings that decide which packages the installer finds, for example the index.
    """
    python = [sys.version, sysconfig.get_config_var("SOABI"), platform.machine(), os.path.realpath(sys.executable)]
    below = _installed(sysconfig.get_path("purelib")) if base == "platform" else []
    lines = sorted({_normalized(line) for line in requirements})
    content = json.dumps([2, lines, base, sorted(settings.items()), python, below])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def acquire(
    folder: Path,
    key: str,
    create: Callable[[Path], None],
    is_stopped: Callable[[], bool] = lambda: False,
    on_wait: Callable[[], None] = lambda: None,
) -> SharedVenv:
    """Return the environment `key`. Create it with `create(path)` if needed; wait while another agent creates it.

    Raises:
        InstallStopped: `is_stopped` returned True during the wait.
        BaseException: An error of `create`. The incomplete environment is removed.
    """
    path = folder / key
    lock = _open_lock(path)
    try:
        while True:
            if _try_lock(lock, fcntl.LOCK_SH):
                if (path / _MARKER).exists():
                    os.utime(path / _MARKER)
                    return SharedVenv(path, lock)
                fcntl.flock(lock, fcntl.LOCK_UN)
            if is_stopped():
                raise InstallStopped
            if _try_lock(lock, fcntl.LOCK_EX):
                if not (path / _MARKER).exists():
                    _create(path, create)
                fcntl.flock(lock, fcntl.LOCK_UN)
            else:
                on_wait()
                time.sleep(_POLL_S)
    except BaseException:
        os.close(lock)
        raise


def evict(folder: Path, max_bytes: int, now_s: float) -> list[str]:
    """Remove environments that no job uses; return their names.

    Incomplete environments and those that were unused for a week are always removed. If the rest and uv's cache are
    larger than `max_bytes`, the cache is removed first, and then the least recently used environments. The sizes of
    environments that share files are added, although the disk stores those files once.

    Args:
        folder: The node's folder of environments.
        max_bytes: Maximum size in bytes.
        now_s: Current time, in Unix seconds.
    """
    found = sorted((_usage(path), path) for path in folder.iterdir() if path.is_dir() and not uv_command.is_cache(path))
    total = sum(size for (_, size), _ in found)
    removed: list[str] = []
    for (used_s, size), path in found:
        if now_s - used_s > _UNUSED_S and _remove(path):
            removed.append(path.name)
            total -= size
    cache = uv_command.cache_of(folder)
    if total + uv_command.unshared_bytes(cache) > max_bytes:
        uv_command.clear_cache(cache)
    for (_, size), path in found:
        if total > max_bytes and path.name not in removed and _remove(path):
            removed.append(path.name)
            total -= size
    return removed


def _create(path: Path, create: Callable[[Path], None]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    try:
        create(path)
        draft = path / f"{_MARKER}.draft"
        draft.write_text(json.dumps({"bytes": _size_bytes(path)}))
        draft.rename(path / _MARKER)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _remove(path: Path) -> bool:
    """Remove an environment unless a job uses it; return True if it was removed."""
    lock = _open_lock(path)
    try:
        if not _try_lock(lock, fcntl.LOCK_EX):
            return False
        (path / _MARKER).unlink(missing_ok=True)  # first: an environment without it is never used
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(lock)


def _usage(path: Path) -> tuple[float, int]:
    """Return the time of the last use, in Unix seconds, and the size in bytes; zeros if incomplete."""
    marker = path / _MARKER
    try:
        return marker.stat().st_mtime, int(json.loads(marker.read_text())["bytes"])
    except FileNotFoundError:
        return 0.0, 0


def _size_bytes(path: Path) -> int:
    sizes: dict[int, int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                stat = os.lstat(os.path.join(folder, name))  # noqa: PTH118  a torch has 20,000 files
                sizes[stat.st_ino] = stat.st_blocks * 512
    return sum(sizes.values())


def _installed(folder: str) -> list[str]:
    return sorted(f"{item.name}=={item.version}" for item in metadata.distributions(path=[folder]))


def _normalized(requirement: str) -> str:
    """Return one spelling of a requirement: case and separators in the name have no meaning (PEP 503)."""
    name = re.match(r"[\w.-]*", requirement)
    assert name is not None
    return canonicalize_name(name[0]) + re.sub(r"\s+", "", requirement[name.end() :])


def _open_lock(path: Path) -> int:
    return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
