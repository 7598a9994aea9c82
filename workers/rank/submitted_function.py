"""Load a function that `regroup.submit` sent (`api/client/function_jobs.py` packs it).

Needs neither torch nor regroup. The cloudpickle package that wrote the function is in the folder, so the job's
interpreter does not need it.
"""

import importlib
import json
import linecache
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ABOUT = "about.json"
PICKLE = "function.pickle"


class WrongPythonError(Exception):
    """The function was pickled by another Python version, whose bytecode this one cannot read."""


def load(folder: Path) -> Callable[..., Any]:
    """Return the function in `folder`.

    Raises:
        WrongPythonError: the folder holds bytecode of another Python version.
    """
    about: Mapping[str, Any] = json.loads((folder / ABOUT).read_text())
    _check_python(str(about["python"]))
    _show_sources(about["sources"])
    sys.path.insert(0, str(folder))
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    finally:
        sys.path.remove(str(folder))
    return cloudpickle.loads((folder / PICKLE).read_bytes())


def _check_python(written_by: str) -> None:
    mine = platform.python_version_tuple()[:2]
    if tuple(written_by.split(".")[:2]) != mine:
        raise WrongPythonError(
            f"the function was submitted from Python {written_by}, and the job's interpreter on node "
            f"{platform.node()} is Python {platform.python_version()}: a pickled function is bytecode of one minor "
            "version. Submit it from the same one, or put the function into a file and name it in workload.function"
        )


def _show_sources(sources: Mapping[str, Sequence[str]]) -> None:
    """Let tracebacks show the lines of notebook cells, which exist as files on no node."""
    for name, lines in sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, list(lines), name)
