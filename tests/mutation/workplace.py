"""A copy of the tree with a forking server in it. The working tree itself is never changed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutation.mutants import Mutant, source_with

_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "demo", "node_modules", ".*_cache", ".hypothesis"
)
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "REGROUP_TEST_FORKS": "1",  # tests/workers/conftest.py: the double of an agent is forked, not started
    "CI": "1",  # hypothesis draws the same examples each time
}
_END_S = 5.0


@dataclass(frozen=True)
class Outcome:
    """Result of a run of tests."""

    code: int | None
    """Exit code of pytest; None: they ran past the limit."""
    seconds: float
    log: str


@dataclass(frozen=True)
class Workplace:
    """A copied tree and its server."""

    root: Path
    server: subprocess.Popen[str]

    def preload(self, tests: Sequence[str]) -> None:
        """Let the server import what the tests need."""
        self._request({"preload": list(tests)})

    def run(self, tests: Sequence[str], limit_s: float, mutant: Mutant | None = None) -> Outcome:
        """Run the tests on the copy, with the mutant in it."""
        log = self.root.parent / f"{self.root.name}.log"
        request = {"tests": list(tests), "limit_s": limit_s, "log": str(log)}
        if mutant is None:
            reply = self._request(request)
        else:
            path = self.root / mutant.module
            whole = path.read_text()
            path.write_text(source_with(mutant, whole))
            Path(cache_from_source(str(path))).unlink(missing_ok=True)
            try:
                reply = self._request(request)
            finally:
                path.write_text(whole)
        return Outcome(reply["code"], reply["seconds"], log.read_text(errors="replace"))

    def _request(self, request: dict[str, object]) -> dict[str, object]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        line = self.server.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that runs the tests ended with {self.server.wait()}")
        return json.loads(line)


@contextmanager
def workplace(source: Path, root: Path) -> Generator[Workplace]:
    """Copy the tree `source` to `root` and start a server there; end it and all that it started afterwards."""
    shutil.copytree(source, root, symlinks=True, ignore=_NOT_COPIED)
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.mutation.forking_server"],
        cwd=root,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches the driver alone, which ends the server through its input
    )
    with server:
        try:
            yield Workplace(root, server)
        finally:
            assert server.stdin is not None
            server.stdin.close()
            try:
                server.wait(_END_S)
            except subprocess.TimeoutExpired:  # the server is importing; its child ends with it
                server.kill()
