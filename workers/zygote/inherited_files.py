"""Descriptors that a fork copies: no process of a zygote shares a file's position or a connection with another one.

Modules may open files while the zygote imports them. A child opens such a file again, at the same position. It cannot
do that with a connection, so there it finds one that its peer has closed. A number that is only closed would be given
to the next file, and the module would write there.
"""

import contextlib
import fcntl
import gc
import io
import multiprocessing.process
import os
import socket
import stat
import sys
from collections.abc import Collection
from typing import Any

_STATUS_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DIRECT
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_zygote_fds: set[int] = set()


def close_in_children(*fds: int) -> None:
    """Have children close these descriptors: they belong to the zygote, not to a module that it imported."""
    _zygote_fds.update(fds)


def flush_files() -> None:
    """Write out what modules have written to their open files. Otherwise each child would write it again."""
    if not _open_fds() - _zygote_fds:
        return
    for each in gc.get_objects():
        if issubclass(type(each), _BUFFERED):  # objects may compute `__class__`, which `isinstance` reads
            with contextlib.suppress(OSError, ValueError):  # the file is closed, or only for reading
                each.flush()


def renew(own: Collection[int], close: Collection[int]) -> None:
    """Close the zygote's descriptors and `close` in this child, and renew all others above 2 except its `own`."""
    for fd in _open_fds().difference(own):
        if fd in _zygote_fds or fd in close:
            os.close(fd)
        elif not _open_again(fd):
            _replace_by_closed_connection(fd)
    _zygote_fds.clear()
    _renew_multiprocessing()


def _open_fds() -> set[int]:
    """Return the open descriptors of this process above 2."""
    found: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of this list
            fcntl.fcntl(int(name), fcntl.F_GETFD)
            found.add(int(name))
    return {fd for fd in found if fd > 2}


def _open_again(fd: int) -> bool:
    """Give a file, folder or device a position of its own. Return False if that is impossible."""
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode)):
        return False
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) & _STATUS_FLAGS
    try:
        opened = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    with contextlib.suppress(OSError):  # a file without a position
        os.lseek(opened, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(opened, fd, inheritable=os.get_inheritable(fd))
    os.close(opened)
    return True


def _replace_by_closed_connection(fd: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        os.dup2(ours.fileno(), fd, inheritable=os.get_inheritable(fd))


def _renew_multiprocessing() -> None:
    """Let this process start its own servers and draw its own key, as a fresh interpreter does."""
    processes: Any = multiprocessing.process
    processes.current_process()._config["authkey"] = processes.AuthenticationString(os.urandom(32))
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_after_forkers()
    tracker: Any = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    if tracker is not None and tracker._fd is not None:
        tracker._fd = tracker._pid = None
    server: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is not None and getattr(server, "_forkserver_pid", None) is not None:
        server._forkserver_fd = server._forkserver_alive_fd = server._forkserver_pid = None
