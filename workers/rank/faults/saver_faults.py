"""Faults of a checkpoint saver in the middle of its work. The job must recover from an older checkpoint."""

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_POLL_S = 0.0005
_FULL, _BROKEN = Path("/dev/full"), Path("/proc/self/mem")
"""Devices that accept no byte: ENOSPC; and EIO, because nothing is mapped at address 0."""
_METADATA = ".metadata.tmp"
"""Name that torch gives the metadata file until it is complete."""


def find_disk_full(args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    """Run `args["target"]`, which writes the metadata, with `args["args"]`; the disk is full.

    Raises:
        OSError: no space is left on the device.
    """
    return _written_to(_FULL, args, fds)


def find_disk_broken(args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    """Run `args["target"]`, which writes the metadata, with `args["args"]`; the disk has I/O errors.

    Raises:
        OSError: input/output error.
    """
    return _written_to(_BROKEN, args, fds)


def die_at_work(args: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Run `args["target"]` with `args["args"]`, and kill the process with SIGKILL after it has written some bytes."""
    work = threading.Thread(target=_target(args), args=(args["args"], fds))
    work.daemon = True
    work.start()
    while work.is_alive() and not _has_bytes(args["args"], fds):
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def _has_bytes(args: Mapping[str, Any], fds: Sequence[int]) -> bool:
    if "directory" not in args:
        return any(os.fstat(fd).st_size for fd in fds[len(args["shards"]) :])
    for path in Path(args["directory"]).iterdir():
        with contextlib.suppress(FileNotFoundError):  # the file got its final name
            if path.stat().st_size:
                return True
    return False


def _written_to(device: Path, args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    Path(args["args"]["directory"], _METADATA).symlink_to(device)
    return _target(args)(args["args"], fds)


def _target(args: Mapping[str, Any]) -> Callable[[Any, Sequence[int]], Any]:
    module, _, name = str(args["target"]).partition(":")
    return getattr(importlib.import_module(module), name)
