"""Installation of requirements into a new virtual environment, with uv.

The process reports its progress, can be stopped, and never prints a secret. Blocking: it runs in a thread of the
agent.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from regroup.workers.environment import uv_command
from regroup.workers.environment.pip_settings import uv_settings
from regroup.workers.environment.uv_output import UvProgress, reason_of
from regroup.workers.environment.venvs import InstallStopped
from regroup.workers.os import kill_tree
from regroup.workers.os.start_errors import start_error

TIMEOUT_S = 3600.0
_LAST_LINES = 30
_POLL_S = 0.5
_INSTALLER = "regroup"
"""Value in `INSTALLER` that marks the records of the platform's packages."""
_PLATFORM_PATH = "regroup-platform.pth"
_READABLE = 0o022
_RECORDED = ("METADATA", "WHEEL", "direct_url.json")


class InstallFailed(Exception):
    """The failure of an installation; `lines` are the last lines of its output."""

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = tuple(lines)


class Installer:
    """The installation of one environment. Any thread may call `stop` at any time."""

    def __init__(
        self,
        env: Mapping[str, str],
        job_names: Collection[str],
        hide: Callable[[str], str],
        log: Path,
        on_progress: Callable[[float | None, str], None],
        timeout_s: float = TIMEOUT_S,
        *,
        is_shared: bool = False,
    ) -> None:
        """Args:
        env: Environment of the installation.
        job_names: Names of the variables in `env` that the job defines.
        hide: Removes secrets from a line of output.
        log: File that receives every line.
        on_progress: Receives a fraction, if there is one, and a message.
        timeout_s: Limit for each process.
        is_shared: Other users than this one run the environment. Then only wheels are installed: uv runs as this
            user, and a package that must be built would execute its code.
        """
        self._env, self._settings = env, uv_settings(env, job_names)
        self._hide, self._log, self._on_progress, self._timeout_s = hide, log, on_progress, timeout_s
        self._is_shared = is_shared
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """True after `stop`."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Kill the running process with all its descendants."""
        self._stopped.set()

    def install(self, venv: Path, requirements: Sequence[str], base: str) -> None:
        """Create the environment `venv` with these requirements.

        Args:
            venv: Folder that does not exist yet, in the node's folder of environments.
            requirements: Requirements in the syntax of pip.
            base: `platform`: the environment also sees the platform's packages; `none`: it does not.

        Raises:
            InstallFailed: uv failed, the disk failed, or `timeout_s` has passed.
            InstallStopped: `stop` was called.
        """
        cache = uv_command.cache_of(venv.parent)
        if self._is_shared:
            cache.mkdir(mode=0o700, exist_ok=True)  # with the packages of all jobs
        try:
            self._install(venv, requirements, base, cache)
        except OSError as error:
            raise InstallFailed(f"{venv}: {error.strerror}", ()) from error
        except BaseException:
            uv_command.prune_cache(cache)  # a killed build leaves its folder there
            raise

    def _install(self, venv: Path, requirements: Sequence[str], base: str, cache: Path) -> None:
        self._on_progress(None, "creating a virtual environment")
        env = uv_command.environment(self._env, self._settings.variables, cache)
        self._run(uv_command.command("venv", "--quiet", "--no-project", "--python", sys.executable, str(venv)), env)
        if self._is_shared:
            venv.chmod(0o755)
        packages = _packages_folder(venv)
        if base == "platform":
            _record_platform(packages)
        temporary = venv / "temporary"
        temporary.mkdir()
        listed = venv / "requirements.txt"
        listed.write_text("".join(f"{line}\n" for line in requirements))
        for option in self._settings.ignored:
            self._write(f"uv has no counterpart for pip's setting {option}: it has no effect")
        index = () if self._settings.has_index else ("--no-index",)
        target = ("--python", str(venv / "bin" / "python"))
        # Backends that build packages unpack in the environment's own folder, which is removed with it.
        env |= {"TMPDIR": str(temporary)}
        if self._is_shared:
            index = (*index, "--no-build", "--link-mode", "copy")
        command = uv_command.command("pip", "install", *index, *target, "--requirements", str(listed))
        self._run(command, env, UvProgress())
        shutil.rmtree(temporary, ignore_errors=True)
        if base == "platform":
            _expose_platform(packages)
            if self._is_shared:
                (packages / _PLATFORM_PATH).chmod(0o644)

    def _run(self, command: Sequence[str], env: Mapping[str, str], progress: UvProgress | None = None) -> None:
        """Run a command to its end and report its progress."""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        began_s = time.monotonic()
        deadline_s = began_s + self._timeout_s
        try:
            process = subprocess.Popen(
                command,
                env=env,
                # uv reads uv.toml of the working folder and of its parents: no other user may write there.
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                umask=_READABLE if self._is_shared else -1,
            )
        except (OSError, ValueError) as error:
            raise start_error("the installation of the requirements", error) from error
        with process:
            assert process.stdout is not None
            try:
                for line in _lines(process.stdout, lambda: self._check(deadline_s, last)):
                    if line is not None:
                        last.append(self._write(line))
                    if progress is not None and (news := progress.update(line, time.monotonic() - began_s)) is not None:
                        self._on_progress(news[0], self._hide(news[1]))
            except BaseException:
                _kill(process)
                raise
            code = process.wait()
        if code:
            raise InstallFailed(reason_of(last, code), last)

    def _write(self, line: str) -> str:
        """Append a line to the log, and return it without secrets."""
        shown = self._hide(line)
        with self._log.open("a") as log:
            print(shown, file=log)
        return shown

    def _check(self, deadline_s: float, last: Iterable[str]) -> None:
        if self._stopped.is_set():
            raise InstallStopped
        if time.monotonic() > deadline_s:
            raise InstallFailed(f"it did not end within {self._timeout_s:.0f} s", tuple(last))


def _packages_folder(venv: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return venv / "lib" / version / "site-packages"


def _lines(stream: IO[bytes], check: Callable[[], None]) -> Iterable[str | None]:
    """Yield lines as they arrive, and None after each pause without one; `check` may raise at any time."""
    fd, rest = stream.fileno(), b""
    poll = select.poll()  # not select(): an agent may have more than 1,024 descriptors
    poll.register(fd, select.POLLIN)
    while True:
        check()
        if not poll.poll(_POLL_S * 1000):
            yield None
            continue
        data = os.read(fd, 65536)
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip()
    if rest:
        yield rest.decode(errors="replace").rstrip()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)  # no new process while its descendants are killed
    kill_tree.kill_subtree(process.pid, frozenset(), 5.0)
    process.kill()
    process.wait()


def _record_platform(packages: Path) -> None:
    """Make the platform's packages visible to uv, as packages that are installed in `packages`.

    uv then keeps each of them that the requirements accept. It ignores packages on other paths, also those of
    `--system-site-packages`. A record lists no file but its own: an uninstallation never touches the platform.
    """
    for info in Path(sysconfig.get_path("purelib")).glob("*.dist-info"):
        folder = packages / info.name
        folder.mkdir()
        names = [name for name in _RECORDED if (info / name).exists()]
        for name in names:
            shutil.copyfile(info / name, folder / name)
        (folder / "INSTALLER").write_text(_INSTALLER)
        (folder / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in (*names, "INSTALLER", "RECORD")))


def _expose_platform(packages: Path) -> None:
    """Put the platform's packages on the path of the environment, in place of their records."""
    for installer in packages.glob("*.dist-info/INSTALLER"):
        if installer.read_text() == _INSTALLER:
            shutil.rmtree(installer.parent)
    # A venv made from a venv does not see what is in that. Last on the path: packages of the environment win.
    below = json.dumps(sysconfig.get_path("purelib"))
    (packages / _PLATFORM_PATH).write_text(f"import site; site.addsitedir({below})\n")
