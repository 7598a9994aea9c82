"""The Python of one job on one node: the platform's, one of the node, or a new one with the job's requirements.

A Python other than the platform's sees a package `regroup` that contains only `workers`.
"""

import asyncio
import contextlib
import errno
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
from regroup.workers.contract.codec import plain
from regroup.workers.environment import venvs
from regroup.workers.environment.installer import Installer, InstallFailed
from regroup.workers.environment.process_env import scrubbed_environment, zygote_environment
from regroup.workers.environment.redaction import Redactor, secrets_on_node
from regroup.workers.os import job_files
from regroup.workers.os.start_errors import StartError, start_error

MIN_PYTHON = (3, 11)
"""Oldest Python that `regroup.workers` supports."""
_PLATFORM_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONBREAKPOINT", "VIRTUAL_ENV")
"""Variables that apply to the platform's Python only."""
_INDEX_VARIABLES = frozenset(
    f"{prefix}{name}"
    for prefix, names in {
        "PIP_": ("EXTRA_INDEX_URL", "FIND_LINKS", "INDEX_URL", "NO_INDEX", "PRE", "TRUSTED_HOST"),
        "UV_": (
            "DEFAULT_INDEX", "EXCLUDE_NEWER", "EXTRA_INDEX_URL", "FIND_LINKS", "INDEX", "INDEX_STRATEGY", "INDEX_URL",
            "PRERELEASE", "RESOLUTION",
        ),
    }.items()
    for name in names
)  # fmt: skip
"""Variables with which a job with a user of its own chooses packages and where they come from."""
_SHARED = "wheels only"
_PROGRESS_S = 0.5
"""Least time between two reports of progress."""
_TIMEOUT_S = 60.0
_DESCRIBE = """
import importlib.util, json, sys
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(json.dumps({"version": list(sys.version_info[:3]), "missing": missing}))
"""


class PythonUnfit(Exception):
    """A Python that does not exist on this node, could not be created, or cannot run the job."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def activated(env: Mapping[str, str], place: Mapping[str, str], config: AgentConfig) -> dict[str, str]:
    """Return `env` with the variables that make processes use the Python at `place`; unchanged for the platform's."""
    if not place["ours"]:
        return dict(env)
    env = {key: value for key, value in env.items() if key not in _PLATFORM_VARIABLES}
    path = [config.env.get("PYTHONPATH"), place["ours"]]
    # As `activate` does: programs that ranks start use the same Python.
    env["PATH"] = os.pathsep.join((str(Path(place["executable"]).parent), env.get("PATH", os.defpath)))
    if place["venv"]:
        env["VIRTUAL_ENV"] = place["venv"]
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, path))}


class JobPython:
    """The Python of one job. `executable` and `environment` are valid after `prepare` has returned."""

    def __init__(
        self,
        config: AgentConfig,
        scratch: Path,
        log: Path,
        note: Callable[[str, dict[str, Any]], None],
        user: int | None = None,
    ) -> None:
        """`log` is the file for the output of uv; `note(kind, data)` reports progress to people.

        `user` is the job's own user, as which everything runs that the job may choose.
        """
        self._config, self._scratch, self._log, self._note, self._user = config, scratch, log, note, user
        self._preparation: asyncio.Task[dict[str, Any]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._installer: Installer | None = None
        self._closed = threading.Event()
        self._venv: venvs.SharedVenv | None = None
        self._progress_s = 0.0

    @property
    def executable(self) -> str:
        """Path of the interpreter."""
        return self._venv.python if self._venv is not None else self._config.interpreter or sys.executable

    @property
    def is_own(self) -> bool:
        """True if it is not the platform's."""
        return bool(self._config.requirements or self._config.interpreter)

    def environment(self) -> dict[str, str]:
        """Return the variables of the zygote.

        Raises:
            SecretMissing: The source of a secret is not on this node, or is not for ranks.
        """
        return activated(zygote_environment(self._config), self.place, self._config)

    @property
    def place(self) -> dict[str, str]:
        """Location on this node, as `activated` needs it for processes of other programs. It contains no secret."""
        venv = str(self._venv.path) if self._venv is not None else ""
        ours = str(self._workers_folder) if self.is_own else ""
        return {"executable": self.executable, "venv": venv, "ours": ours}

    async def prepare(self) -> dict[str, Any]:
        """Create or find the Python, once, and return its description for people.

        Raises:
            PythonUnfit: It does not exist, cannot be created, or lacks a package that the job needs.
            SecretMissing: The source of a secret is not on this node.
            StartError: The operating system refuses to start it.
        """
        if self._preparation is None:
            self._loop = asyncio.get_running_loop()
            self._preparation = self._loop.create_task(asyncio.to_thread(self._prepare))
        return await asyncio.shield(self._preparation)

    async def close(self) -> None:
        """Stop an installation, and release the environment."""
        self._closed.set()
        if self._installer is not None:
            self._installer.stop()
        if self._preparation is not None:
            with contextlib.suppress(Exception):
                await self._preparation
        if self._venv is not None:
            self._venv.release()

    # ------------------------------------------------------------ in a thread

    @property
    def _workers_folder(self) -> Path:
        return self._scratch / "platform"

    def _prepare(self) -> dict[str, Any]:
        if not self.is_own:
            return {}
        if self._config.rank_users and self._user is None:
            raise StartError("the job's Python does not start: the job has no user here", is_of_node=True)
        began_s, is_new = time.monotonic(), False
        if self._config.requirements:
            is_new = self._acquire_venv()
        _link_workers(self._workers_folder)
        if self._user is not None:
            for folder in (self._workers_folder, self._workers_folder / "regroup"):
                job_files.open_to_all(folder)
        version = self._check()
        description = {
            "node": self._config.node_name,
            "python": f"{self.executable} ({version})",
            "seconds": time.monotonic() - began_s,
            "installed": is_new,
        }
        self._note_from_thread("environment", description)
        return description

    def _acquire_venv(self) -> bool:
        """Acquire the environment of the job's requirements; return True if it had to be created."""
        config = self._config
        given = zygote_environment(config)
        names = {*config.env, *config.secrets}
        if self._user is not None:
            # uv runs as the agent, so the job chooses the packages and their index, and nothing that uv executes.
            given = scrubbed_environment({name: given[name] for name in names & _INDEX_VARIABLES})
        env = _installer_environment(given)
        hide = Redactor(secrets_on_node(config)).hide
        installer = self._installer = Installer(
            env, names, hide, self._log, self._report_progress, is_shared=self._user is not None
        )
        if self._closed.is_set():
            installer.stop()
        is_new = False

        def create(path: Path) -> None:
            nonlocal is_new
            is_new = True
            installer.install(path, config.requirements, config.base)

        try:
            folder = venvs.node_folder()
            settings = _installer_settings(config)
            if self._user is not None:
                folder.chmod(0o711)  # every job's user may enter the environment whose name it knows
                settings = {name: value for name, value in settings.items() if name in _INDEX_VARIABLES}
                settings[_SHARED] = "1"  # an environment that code of another job has built is a different one
            key = venvs.key_of(config.requirements, config.base, settings)
            self._venv = venvs.acquire(
                folder,
                key,
                create,
                lambda: installer.is_stopped,
                lambda: self._report_progress(None, "waiting for another job that installs the same requirements"),
            )
            if is_new:
                venvs.evict(folder, venvs.limit_bytes(), time.time())
        except venvs.InstallStopped as error:
            raise PythonUnfit("the job ended while its requirements were being installed") from error
        except venvs.VenvError as error:
            raise PythonUnfit(str(error)) from error
        except InstallFailed as error:
            raise PythonUnfit(
                f"the requirements could not be installed: {str(error).rstrip('.')}. Correct environment.requirements, "
                "or the index and credentials in env and secrets. "
                f"Full output on node {config.node_name}: {self._log}",
                "\n".join(error.lines),
            ) from error
        return is_new

    def _check(self) -> str:
        """Return the version of the Python.

        Raises:
            PythonUnfit: It cannot run this job.
            StartError: The operating system refuses to start it.
        """
        python = self.executable
        where = f"{python} on node {platform.node()}"
        try:
            done = subprocess.run(
                [python, "-c", _DESCRIBE, *self._config.needs],
                env=self.environment(),
                cwd=self._scratch,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else [],
            )
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
                raise PythonUnfit(
                    f"environment.interpreter: no Python {where}: {error.strerror}; set the path of a Python that "
                    "exists on every node"
                ) from error
            raise start_error("the job's Python", error, python) from error
        except subprocess.TimeoutExpired as error:
            raise PythonUnfit(_not_a_python(where)) from error
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            raise PythonUnfit(_not_a_python(where)) from error
        version = ".".join(map(str, found["version"]))
        if tuple(found["version"][:2]) < MIN_PYTHON:
            raise PythonUnfit(f"{where} is Python {version}; ranks need {'.'.join(map(str, MIN_PYTHON))} or newer")
        if missing := found["missing"]:
            remedy = "add it to environment.requirements" if self._config.requirements else "install it there"
            raise PythonUnfit(f"{where} (Python {version}) has no {', '.join(missing)}, which the job needs: {remedy}")
        return version

    def _report_progress(self, fraction: float | None, message: str) -> None:
        """Report progress, at most twice a second."""
        if (now_s := time.monotonic()) - self._progress_s < _PROGRESS_S and fraction != 1.0:
            return
        self._progress_s = now_s
        data = {"phase": "environment", "fraction": fraction, "message": f"{message} on {self._config.node_name}"}
        self._note_from_thread("progress", data)

    def _note_from_thread(self, kind: str, data: dict[str, Any]) -> None:
        assert self._loop is not None, "prepare was called"
        self._loop.call_soon_threadsafe(self._note, kind, data)


def _not_a_python(where: str) -> str:
    return f"environment.interpreter: {where} does not run Python code; set the path of a Python interpreter"


def _installer_settings(config: AgentConfig) -> Mapping[str, str]:
    """Return the job's settings of the installer, for example its index. Secrets are represented by their sources."""
    secret = {name: json.dumps(plain(source), sort_keys=True) for name, source in config.secrets.items()}
    return {name: value for name, value in {**config.env, **secret}.items() if name.startswith(("PIP_", "UV_"))}


def _installer_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without variables that change which packages an interpreter sees."""
    return {**{key: value for key, value in env.items() if key not in _PLATFORM_VARIABLES}, "PYTHONUNBUFFERED": "1"}


def _link_workers(folder: Path) -> None:
    """Fill a folder for the module path: it contains the package `regroup` with only `workers`."""
    installed = Path(regroup.__file__).parent
    package = folder / "regroup"
    package.mkdir(parents=True, exist_ok=True)
    for name in ("__init__.py", "workers"):
        with contextlib.suppress(FileExistsError):
            (package / name).symlink_to((installed / name).resolve())
