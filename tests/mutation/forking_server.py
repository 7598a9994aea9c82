"""A process that has imported what the tests import, and forks one child for each mutant that runs them.

The driver starts it in a copy of the tree. It reads one JSON request per line and ends, with everything below
it, when its input ends. It must run nothing in torch itself, because a fork after an OpenMP region hangs.
"""

import contextlib
import importlib
import json
import os
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.os import kill_tree, procfs

_OPTIONS = ("-x", "-q", "--no-header", "--tb=line", "-m", "not slow and not soak")
_PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-W", "ignore::pytest.PytestAssertRewriteWarning")
_POLL_S = 0.5
_END_S = 3.0


def serve() -> None:
    """Answer `{tests, limit_s, log}` with `{code, seconds}`; the code is null after the time limit."""
    procfs.become_subreaper()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in os.fdopen(0, "rb", buffering=0, closefd=False):
        request = json.loads(line)
        if "preload" in request:
            reply: dict[str, Any] = {"modules": preload(request["preload"])}
        else:
            reply = run(request["tests"], request["limit_s"], request["log"])
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def preload(tests: Sequence[str]) -> int:
    """Import what the tests import, except modules of the tree, which each child imports; return their number."""
    reader, writer = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        procfs.die_with_parent(server)
        sys.dont_write_bytecode = False
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            pytest.main([*_PLUGINS, "-q", "--collect-only", *tests])
        with os.fdopen(writer, "w") as out:
            out.write("\n".join(name for name in list(sys.modules) if _is_foreign(name)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as inp:
        names = inp.read().split()
    os.waitpid(pid, 0)
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return len(names)


def run(tests: Sequence[str], limit_s: float, log: str) -> dict[str, Any]:
    """Run tests in a child; return pytest's exit code and the seconds that it took."""
    began_s = time.monotonic()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        procfs.die_with_parent(server)
        _run_child(tests, log)
    code = _code_of(pid, began_s + limit_s)
    kill_tree.kill_subtree(os.getpid(), frozenset(), _END_S)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return {"code": code, "seconds": time.monotonic() - began_s}


def _run_child(tests: Sequence[str], log: str) -> None:
    code = 3
    try:
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        silent = os.open(os.devnull, os.O_RDONLY)
        os.dup2(silent, 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        code = int(pytest.main([*_PLUGINS, *_OPTIONS, *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _code_of(pid: int, until_s: float) -> int | None:
    """Wait for the child; return None after the time limit. When the input ends, end this process, too."""
    handle = os.pidfd_open(pid)
    try:
        while (left_s := until_s - time.monotonic()) > 0:
            ready, _, _ = select.select([handle, 0], [], [], min(left_s, _POLL_S))
            if handle in ready:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if 0 in ready:  # requests come one at a time: this is the end of the input
                kill_tree.kill_subtree(os.getpid(), frozenset(), _END_S)
                os._exit(1)
        return None
    finally:
        os.close(handle)


def _is_foreign(name: str) -> bool:
    """Tell whether a module belongs to no package of the tree, and pytest need not import it itself."""
    spec = getattr(sys.modules[name], "__spec__", None)
    origin = getattr(spec, "origin", None) or ""
    is_ours = name.partition(".")[0] in ("regroup", "tests", "conftest", "__main__", "__mp_main__")
    return not is_ours and spec is not None and not Path(origin).is_relative_to(Path.cwd())


if __name__ == "__main__":
    serve()
