"""Run a program that is not Python as a rank, as torchrun's `--no-python` does.

Usage: `python -m regroup.workers.rank.child_program PROGRAM [ARGS]...`. The rank waits for the program, passes signals
on to it, and ends as it ended.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

MODULE = "regroup.workers.rank.child_program"
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
"""Exit codes of a shell for a program that cannot be started."""


def main(command: Sequence[str]) -> int:
    """Run `command` and return its exit code. If a signal ended it, end by the same signal."""
    early: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    # Before the program starts: a signal in between must neither end the rank alone nor get lost. The program does not
    # inherit the handlers.
    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        print(f"{command[0]} cannot be started on this node: {error.strerror}", file=sys.stderr, flush=True)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    for number in early:
        child.send_signal(number)
    code = child.wait()
    if code < 0:
        _end_by(-code)
    return code


def _end_by(number: int) -> None:
    if number not in (signal.SIGKILL, signal.SIGSTOP):  # these have no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
