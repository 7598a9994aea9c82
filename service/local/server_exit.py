"""The end of the server process, and its new start in place: both succeed even if a thread never returns."""

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regroup.workers.os import umask

LISTENER = "REGROUP_LISTENER_FD"
"""Variable with the descriptor of the listening socket, from a server to the one that takes its place."""


def end_within(limit_s: float, code: int = 0) -> None:
    """End this process at the latest after `limit_s`, from a thread that does not delay an earlier end.

    Threads inside Ray's client may never return, and the interpreter and other libraries wait for them.
    """
    threading.Thread(target=_end_after, args=(limit_s, code), name="end", daemon=True).start()


@dataclass(frozen=True)
class StartConditions:
    """The conditions under which this process was started, to start it again in the same way."""

    arguments: tuple[str, ...] = field(default_factory=lambda: tuple(sys.orig_argv))
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: Path = field(default_factory=Path.cwd)

    def restart(self, listener: int) -> None:
        """Replace this process by a new one with the same process id, which continues to listen.

        Args:
            listener: descriptor of the listening socket. Clients that connect before it answers wait.
        """
        os.set_inheritable(listener, True)
        added = {LISTENER: str(listener), umask.VARIABLE: f"{umask.user_umask():03o}"}
        os.chdir(self.directory)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, self.arguments, {**self.environment, **added})


def _end_after(limit_s: float, code: int) -> None:
    time.sleep(limit_s)
    os._exit(code)
