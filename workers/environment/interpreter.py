"""The Python of one job on one node: the platform's, one that is on the node, or one made of the job's requirements.

A Python that is not the platform's finds of ours the package `regroup` with nothing but `workers` in it.
"""

import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import regroup
from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment import venvs
from regroup.workers.environment.pip_install import Installer, InstallFailed, hider
from regroup.workers.environment.process_env import zygote_environment
from regroup.workers.os.node_facts import secret_values

OLDEST = (3, 11)
"""Python that `regroup.workers` is written for."""
_OF_THE_PLATFORM = ("PYTHONPATH", "PYTHONHOME", "PYTHONBREAKPOINT", "VIRTUAL_ENV")
"""Variables that say something of the platform's Python, which is false of another."""
_NOTES_S = 0.5
_ANSWERS_S = 60.0
_LOOK = """
import importlib.util, json, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(json.dumps({"version": list(sys.version_info[:3]), "missing": missing}))
"""


class PythonUnfit(Exception):
    """There is no such Python on this node, it could not be made, or a job cannot run in it."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def activated(env: Mapping[str, str], place: Mapping[str, str], config: AgentConfig) -> dict[str, str]:
    """An environment in which processes use the Python at `place`; the platform's needs nothing."""
    if not place["ours"]:
        return dict(env)
    env = {key: value for key, value in env.items() if key not in _OF_THE_PLATFORM}
    path = [config.env.get("PYTHONPATH"), place["ours"]]
    # As `activate` does: programs that ranks start find the same Python.
    env["PATH"] = os.pathsep.join((str(Path(place["executable"]).parent), env.get("PATH", os.defpath)))
    if place["venv"]:
        env["VIRTUAL_ENV"] = place["venv"]
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, path))}


class JobPython:
    """What `executable` and `environment` say is true once `made` has returned."""

    def __init__(
        self, config: AgentConfig, scratch: Path, log: Path, note: Callable[[str, dict[str, Any]], None]
    ) -> None:
        """`log` takes what pip says; `note(kind, data)` tells people how far it is."""
        self._config, self._scratch, self._log, self._note = config, scratch, log, note
        self._making: asyncio.Task[dict[str, Any]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._installer: Installer | None = None
        self._closed = threading.Event()
        self._hold: venvs.Hold | None = None
        self._noted_s = 0.0

    @property
    def executable(self) -> str:
        """Path of the interpreter."""
        return self._hold.python if self._hold is not None else self._config.interpreter or sys.executable

    @property
    def is_own(self) -> bool:
        """It is not the platform's."""
        return bool(self._config.requirements or self._config.interpreter)

    def environment(self) -> dict[str, str]:
        """Variables of the zygote.

        Raises:
            SecretMissing: a secret's source is not on this node, or is not for ranks.
        """
        return activated(zygote_environment(self._config), self.place, self._config)

    @property
    def place(self) -> dict[str, str]:
        """Where it is on this node, for processes that others start: what `activated` must know. Nothing secret."""
        venv = str(self._hold.path) if self._hold is not None else ""
        ours = str(self._ours) if self.is_own else ""
        return {"executable": self.executable, "venv": venv, "ours": ours}

    async def made(self) -> dict[str, Any]:
        """Make it, once, or find it made; returns what a person wants to know of it.

        Raises:
            PythonUnfit: there is none, or it lacks what the job needs.
            SecretMissing: a secret's source is not on this node.
        """
        if self._making is None:
            self._loop = asyncio.get_running_loop()
            self._making = self._loop.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(self._making)

    async def close(self) -> None:
        """Stop what is being installed, and let go of what is."""
        self._closed.set()
        if self._installer is not None:
            self._installer.stop()
        if self._making is not None:
            with contextlib.suppress(Exception):
                await self._making
        if self._hold is not None:
            self._hold.release()

    # ------------------------------------------------------------ in a thread

    @property
    def _ours(self) -> Path:
        return self._scratch / "platform"

    def _make(self) -> dict[str, Any]:
        if not self.is_own:
            return {}
        began_s, is_new = time.monotonic(), False
        if self._config.requirements:
            is_new = self._take_venv()
        _offer_workers(self._ours)
        version = self._check()
        told = {
            "node": self._config.node_name,
            "python": f"{self.executable} ({version})",
            "seconds": time.monotonic() - began_s,
            "installed": is_new,
        }
        self._note_from_thread("environment", told)
        return told

    def _take_venv(self) -> bool:
        """Hold the environment of the job's requirements; True if it had to be made."""
        config = self._config
        env = _plain_environment(zygote_environment(config))
        installer = self._installer = Installer(env, hider(secret_values(config.secrets)), self._log, self._tell)
        if self._closed.is_set():
            installer.stop()
        is_new = False

        def make(path: Path) -> None:
            nonlocal is_new
            is_new = True
            installer.make(path, config.requirements, config.base)

        try:
            folder = venvs.node_folder()
            key = venvs.key_of(config.requirements, config.base, _index_settings(config))
            self._hold = venvs.hold(
                folder,
                key,
                make,
                lambda: installer.is_stopped,
                lambda: self._tell(None, "waiting for another job that installs the same"),
            )
            if is_new:
                venvs.tidy(folder, venvs.limit_bytes(), time.time())
        except venvs.Stopped as error:
            raise PythonUnfit("the job ended while its requirements were being installed") from error
        except venvs.VenvError as error:
            raise PythonUnfit(str(error)) from error
        except InstallFailed as error:
            raise PythonUnfit(
                f"the requirements could not be installed: {error}; all that pip said: {self._log}",
                "\n".join(error.lines),
            ) from error
        return is_new

    def _check(self) -> str:
        """The Python's version.

        Raises:
            PythonUnfit: it cannot run this job.
        """
        python = self.executable
        where = f"{python} on node {platform.node()}"
        try:
            done = subprocess.run(
                [python, "-c", _LOOK, *self._config.needs],
                env=self.environment(),
                cwd=self._scratch,
                capture_output=True,
                text=True,
                timeout=_ANSWERS_S,
                check=False,
            )
            found = json.loads(done.stdout.splitlines()[-1])
        except OSError as error:
            raise PythonUnfit(f"environment.interpreter: no Python {where}: {error.strerror}") from error
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            raise PythonUnfit(f"environment.interpreter: {where} does not answer as a Python does") from error
        version = ".".join(map(str, found["version"]))
        if tuple(found["version"][:2]) < OLDEST:
            raise PythonUnfit(f"{where} is Python {version}; ranks need {'.'.join(map(str, OLDEST))} or newer")
        if missing := found["missing"]:
            mend = "add it to environment.requirements" if self._config.requirements else "install it there"
            raise PythonUnfit(f"{where} (Python {version}) has no {', '.join(missing)}, which the job needs: {mend}")
        return version

    def _tell(self, fraction: float | None, message: str) -> None:
        """At most twice a second."""
        if (now_s := time.monotonic()) - self._noted_s < _NOTES_S and fraction != 1.0:
            return
        self._noted_s = now_s
        data = {"phase": "environment", "fraction": fraction, "message": f"{message} on {self._config.node_name}"}
        self._note_from_thread("progress", data)

    def _note_from_thread(self, kind: str, data: dict[str, Any]) -> None:
        assert self._loop is not None, "made was called"
        self._loop.call_soon_threadsafe(self._note, kind, data)


def _index_settings(config: AgentConfig) -> Mapping[str, str]:
    """What the job tells pip, e.g. of its index: it decides what is found. Of secrets only where they come from."""
    secret = {name: json.dumps(source, sort_keys=True) for name, source in config.secrets.items()}
    return {name: value for name, value in {**config.env, **secret}.items() if name.startswith("PIP_")}


def _plain_environment(env: Mapping[str, str]) -> dict[str, str]:
    """For pip: nothing that changes which packages an interpreter sees."""
    return {**{key: value for key, value in env.items() if key not in _OF_THE_PLATFORM}, "PYTHONUNBUFFERED": "1"}


def _offer_workers(folder: Path) -> None:
    """A folder to be put on a path, with the package `regroup` in it and in that only `workers`."""
    ours = Path(regroup.__file__).parent
    package = folder / "regroup"
    package.mkdir(parents=True, exist_ok=True)
    for name in ("__init__.py", "workers"):
        with contextlib.suppress(FileExistsError):
            (package / name).symlink_to((ours / name).resolve())
