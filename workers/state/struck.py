"""What befalls a saver in a rehearsal, in the middle of its work: a checkpoint has to survive it."""

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
_FULL = Path("/dev/full")
"""Takes no byte: ENOSPC."""
_METADATA = ".metadata.tmp"
"""As torch calls it before it is whole."""


def find_disk_full(args: Mapping[str, Any], fds: Sequence[int]) -> Any:
    """Do `args["target"]` with `args["args"]`; there is no room for the last rank's part, or for the metadata.

    Raises:
        OSError: no space is left.
    """
    shards = args["args"].get("shards")
    Path(args["args"]["directory"], facts_name(shards[-1]["rank"]) if shards else _METADATA).symlink_to(_FULL)
    return _target(args)(args["args"], fds)


def die_at_work(args: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Do `args["target"]` with `args["args"]`, and die of SIGKILL when some of it is written and before it is told."""
    work = threading.Thread(target=_target(args), args=(args["args"], fds))
    work.daemon = True
    work.start()
    folder = Path(args["args"]["directory"])
    while work.is_alive() and not any(path.stat().st_size for path in folder.iterdir()):
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def _target(args: Mapping[str, Any]) -> Callable[[Any, Sequence[int]], Any]:
    module, _, name = str(args["target"]).partition(":")
    return getattr(importlib.import_module(module), name)
