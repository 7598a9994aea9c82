"""What befalls a saver in a rehearsal, in the middle of its work: a checkpoint has to survive it."""

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from regroup.workers.state.checkpoint import facts_name

_POLL_S = 0.0005
_FULL, _BROKEN = Path("/dev/full"), Path("/proc/self/mem")
"""They take no byte: ENOSPC; and EIO, as nothing is mapped at address 0."""
_METADATA = ".metadata.tmp"
"""As torch calls it before it is whole."""


def find_disk_full(args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    """Do `args["target"]` with `args["args"]`; there is no room for the last rank's part, or for the metadata.

    Raises:
        OSError: no space is left.
    """
    return _written_to(_FULL, args, fds)


def find_disk_broken(args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    """Likewise, where the disk has errors.

    Raises:
        OSError: of input and output.
    """
    return _written_to(_BROKEN, args, fds)


def die_at_work(args: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Do `args["target"]` with `args["args"]`, and die of SIGKILL when some of it is written and before it is told."""
    work = threading.Thread(target=_target(args), args=(args["args"], fds))
    work.daemon = True
    work.start()
    folder = Path(args["args"]["directory"])
    while work.is_alive() and not _has_bytes(folder):
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def _has_bytes(folder: Path) -> bool:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was given its name
            if path.stat().st_size:
                return True
    return False


def _written_to(device: Path, args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    shards = args["args"].get("shards")
    Path(args["args"]["directory"], facts_name(shards[-1]["rank"]) if shards else _METADATA).symlink_to(device)
    return _target(args)(args["args"], fds)


def _target(args: Mapping[str, Any]) -> Callable[[Any, Sequence[int]], Any]:
    module, _, name = str(args["target"]).partition(":")
    return getattr(importlib.import_module(module), name)
