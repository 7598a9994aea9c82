"""Python stacks of a running process, even if it never releases the interpreter lock.

The process writes them itself, in a signal handler of `faulthandler` that needs neither the interpreter's lock nor
ptrace. A process that is stopped or waits in the kernel does not answer. The report then gives its kernel state.
"""

import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path

SIGNAL = signal.SIGRTMIN + 6
"""Launchers, schedulers and libraries do not use real-time signals, unlike SIGUSR1 and SIGUSR2."""
_PATIENCE_S = 2.0
_SETTLED_S = 0.05
_CANNOT = frozenset("TtZX")
"""States in which a process runs no signal handler, so that waiting is useless."""
_OWN_THREAD = "/workers/rank/flight_recorder.py"
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)", re.MULTILINE)
_STATES = {
    "R": "runs", "S": "waits", "D": "waits in the kernel and cannot be interrupted", "T": "is stopped by a signal",
    "t": "is stopped by a debugger", "Z": "has ended",
}  # fmt: skip


def answer(path: Path) -> None:
    """Write the stacks of all threads to `path` on each signal."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)
    faulthandler.register(SIGNAL, file=fd, all_threads=True)


def report_crashes() -> None:
    """Write the stacks of all threads to standard error if this process aborts or violates memory."""
    faulthandler.enable(file=2, all_threads=True)


def request(pid: int, path: Path) -> str:
    """Return the stacks of a process that called `answer(path)`, or why there was no answer in 2 s. Blocking.

    The stacks have no end mark, and a busy machine may interrupt the process while it writes them. So it gets the
    signal a second time when the text no longer grows: its second answer begins only after the whole first one.
    """
    try:
        if not _has_handler(pid):
            raise ProcessLookupError
        os.truncate(path, 0)
        os.kill(pid, SIGNAL)
    except (FileNotFoundError, ProcessLookupError):
        return f"process {pid} has not started its handler yet, or has ended"
    deadline = time.monotonic() + (0.0 if _letter(pid) in _CANNOT else _PATIENCE_S)
    text, since = "", time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(_SETTLED_S / 5)
        if (now := path.read_text(errors="replace")) != text:
            text, since = now, time.monotonic()
            continue
        has_settled = bool(text) and time.monotonic() - since > _SETTLED_S
        if _letter(pid) in _CANNOT or (has_settled and _first_answer(text) != text):
            break
        if has_settled:
            since = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGNAL)
    return _without_own_thread(_first_answer(text)) or f"process {pid} does not answer: it {_state(pid)}"


def _has_handler(pid: int) -> bool:
    """Return True if the process catches the signal. Any other process would end with it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(status.partition("\nSigCgt:")[2].split(maxsplit=1)[0], 16)
    return bool(caught >> (SIGNAL - 1) & 1)


def _first_answer(text: str) -> str:
    """Return the text before the second stack of a thread; all of it if no thread has two."""
    seen = set[str]()
    for thread in _THREAD.finditer(text):
        if thread[1] in seen:
            return text[: thread.start()].rstrip() + "\n"
        seen.add(thread[1])
    return text


def _without_own_thread(text: str) -> str:
    """Remove the thread that answers for the platform: it is of no interest to the reader."""
    return "\n\n".join(thread for thread in text.split("\n\n") if _OWN_THREAD not in thread)


def _state(pid: int) -> str:
    letter = _letter(pid)
    return _STATES.get(letter, f"is in state {letter}")


def _letter(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
