"""A rehearsed death of a saver: in the middle of its work, which is what a checkpoint has to survive."""

import importlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_POLL_S = 0.0005


def die_at_work(args: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Do `args["target"]` with `args["args"]`, and die of SIGKILL when some of it is written and before it is told."""
    module, _, name = str(args["target"]).partition(":")
    work = threading.Thread(target=getattr(importlib.import_module(module), name), args=(args["args"], fds))
    work.daemon = True
    work.start()
    folder = Path(args["args"]["directory"])
    while work.is_alive() and not any(path.stat().st_size for path in folder.iterdir()):
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")
