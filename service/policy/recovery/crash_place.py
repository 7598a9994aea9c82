"""Find where a crashed process was, in the stacks that Python writes on a fatal signal. Pure.

The format is that of the module `faulthandler` of CPython: "Fatal Python error: Aborted", then each thread with its
newest frame first. The main thread comes last.
"""

import re
from pathlib import PurePath

_FATAL = "Fatal Python error: "
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")


def find_crash_place(output: str) -> str | None:
    """Return file, line and function of the main thread's newest frame outside of libraries; None without a dump.

    Args:
        output: end of the standard error of the process.
    """
    _, is_fatal, dump = output.rpartition(_FATAL)
    if not is_fatal:
        return None
    frames: list[tuple[str, str, str]] = _FRAME.findall(_THREAD.split(dump)[-1])
    if not frames:
        return None
    own = (frame for frame in frames if not any(part in frame[0] for part in _LIBRARIES))
    file, line, function = next(own, frames[0])
    return f"{PurePath(file).name}, line {line}, in {function}"
