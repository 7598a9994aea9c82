"""pip in a new virtual environment: a process that says how far it is, can be stopped, and gives no secret away.

Blocking; runs in a thread beside the agent's loop.
"""

import importlib.util
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from regroup.workers.environment.venvs import Stopped, canonical
from regroup.workers.os import kill_tree

TIMEOUT_S = 3600.0
_LAST_LINES = 30
_LOOK_S = 0.5
_STILL_S = 10.0
"""After so long without news it is said what goes on still."""
_OPTIONS = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")


class InstallFailed(Exception):
    """pip gave up; `lines` are the last that it said."""

    def __init__(self, message: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = tuple(lines)


class Installer:
    """Makes one environment. `stop` may be called from another thread, at any time."""

    def __init__(
        self,
        env: Mapping[str, str],
        hide: Callable[[str], str],
        log: Path,
        on_progress: Callable[[float | None, str], None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`hide` takes secrets out of a line before anybody sees it; `log` keeps every line."""
        self._env, self._hide, self._log, self._on_progress, self._timeout_s = env, hide, log, on_progress, timeout_s
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Nobody waits for it any more."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End what runs, with all it started."""
        self._stopped.set()

    def make(self, venv: Path, requirements: Sequence[str], base: str) -> None:
        """Put an environment with these requirements into `venv`, over the platform's packages if that is the `base`.

        Raises:
            InstallFailed: pip, or the disk, did not do it.
            Stopped: `stop` was called.
        """
        try:
            has_pip = importlib.util.find_spec("pip") is not None
            self._on_progress(None, "making a virtual environment")
            self._run([sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), str(venv)], venv)
            packages = _packages_folder(venv)
            if base == "platform":
                # A venv made from a venv does not see what is in that. Last on the path: what is installed here wins.
                below = sysconfig.get_path("purelib")
                (packages / "regroup-platform.pth").write_text(f"import site; site.addsitedir({json.dumps(below)})\n")
            temporary = venv / "temporary"
            temporary.mkdir()
            listed = temporary / "requirements.txt"
            listed.write_text("".join(f"{line}\n" for line in requirements))
            python = str(venv / "bin" / "python")
            pip = [sys.executable, "-m", "pip", "--python", python] if has_pip else [python, "-m", "pip"]
            self._run([*pip, "install", *_OPTIONS, "--requirement", str(listed)], venv, PipLines(packages))
            shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise InstallFailed(f"{venv}: {error.strerror}", ()) from error

    def _run(self, command: Sequence[str], venv: Path, lines: "PipLines | None" = None) -> None:
        """Run a command to its end, saying what it does."""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        began_s = time.monotonic()
        deadline = began_s + self._timeout_s
        # What pip unpacks and builds lies in the environment's own folder, and goes with it.
        env = {**self._env, "TMPDIR": str(venv / "temporary")} if lines is not None else dict(self._env)
        with (
            self._log.open("a") as log,
            subprocess.Popen(
                command,
                env=env,
                cwd=venv.parent,  # it is on the path of what runs here
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for line in _lines(process.stdout, lambda: self._check(deadline, last)):
                    if line is not None:
                        shown = self._hide(line)
                        last.append(shown)
                        print(shown, file=log, flush=True)
                    if lines is not None and (told := lines.told(line, time.monotonic() - began_s)) is not None:
                        self._on_progress(told[0], self._hide(told[1]))
            except BaseException:
                _end(process)
                raise
            code = process.wait()
        if code:
            raise InstallFailed(_reason(last, code), last)

    def _check(self, deadline: float, last: Iterable[str]) -> None:
        if self._stopped.is_set():
            raise Stopped
        if time.monotonic() > deadline:
            raise InstallFailed(f"it did not end within {self._timeout_s:.0f} s", tuple(last))


class PipLines:
    """What pip is doing, from the lines it prints and, where it is silent, from what is there already."""

    def __init__(self, packages: Path) -> None:
        self._packages = packages
        self._found: set[str] = set()
        self._installing: frozenset[str] = frozenset()
        self._done = -1
        self._newest: tuple[float | None, str] = (None, "resolving requirements")
        self._told_s = 0.0

    def told(self, line: str | None, elapsed_s: float) -> tuple[float | None, str] | None:
        """A fraction, if known, and words; None if there is nothing new. `line` is None when pip is silent."""
        told = self._heard(line or "")
        if told is not None:
            self._newest, self._told_s = told, elapsed_s
        elif elapsed_s - self._told_s >= _STILL_S:
            self._told_s = elapsed_s
            fraction, message = self._newest
            told = fraction, f"{message}, after {elapsed_s:.0f} s"
        return told

    def _heard(self, line: str) -> tuple[float | None, str] | None:
        match line.split():
            case ["Collecting", name, *_]:
                self._found.add(name)
                return None, f"resolving {name} ({len(self._found)} found)"
            case ["Downloading", source, *size]:
                return None, " ".join(["downloading", source.rpartition("/")[2], *size])
            case ["Building", "wheel", "for", name, *_]:
                return None, f"building {name}"
            case ["Installing", "collected", "packages:", *names]:
                self._installing = frozenset(canonical(name.rstrip(",")) for name in names)
            case _:
                pass
        if not self._installing:
            return None
        there = {canonical(path.name.partition("-")[0]) for path in self._packages.glob("*.dist-info")}
        done, total = len(self._installing & there), len(self._installing)
        if done == self._done:
            return None
        self._done = done
        return done / total, f"installing {done}/{total}"


def hider(values: Iterable[str]) -> Callable[[str], str]:
    """A function that takes these values out of a line: whole, the names and passwords of those that are addresses,
    and whoever is named in any address."""
    hidden: set[str] = set()
    for value in values:
        hidden |= {value, *value.splitlines()}
        for word in value.split():
            if "://" in word:
                parts = urlsplit(word)
                told = [part for part in (parts.username, parts.password) if part]
                hidden |= {*told, *(unquote(part) for part in told)}
    longest_first = sorted((value for value in hidden if value), key=len, reverse=True)

    def hide(line: str) -> str:
        for value in longest_first:
            line = line.replace(value, "***")
        return re.sub(r"://[^/\s@]+@", "://***@", line)

    return hide


def _packages_folder(venv: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return venv / "lib" / version / "site-packages"


def _lines(stream: IO[bytes], check: Callable[[], None]) -> Iterable[str | None]:
    """Lines as they come, and None whenever none has come for a while; `check` may raise at any time."""
    fd, rest = stream.fileno(), b""
    poll = select.poll()  # not select(): an agent may have more than 1,024 descriptors
    poll.register(fd, select.POLLIN)
    while True:
        check()
        if not poll.poll(_LOOK_S * 1000):
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


def _reason(last: Iterable[str], code: int) -> str:
    """The last thing that pip called an error, else its last line."""
    said = [line.strip() for line in last if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    return errors[-1] if errors else f"it ended with code {code} after {said[-1]!r}" if said else f"code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)  # so that it starts nothing new while what is below it is ended
    kill_tree.kill_subtree(process.pid, frozenset(), 5.0)
    process.kill()
    process.wait()
