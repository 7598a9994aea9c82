"""The end of the server process and its new start in place."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path


def run(code: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


def test_a_process_ends_although_a_thread_never_returns() -> None:
    process = run(STUCK)
    begin_s = time.monotonic()
    assert process.wait(30) == 3
    assert process.stdout is not None and process.stdout.read() == "main thread has ended\n"
    assert time.monotonic() - begin_s < 25


def test_a_process_starts_again_with_its_id_its_conditions_and_its_socket(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        environment = {**os.environ, "KEPT": "yes", "SOCKET": str(listener.fileno())}
        process = run(RESTARTED, cwd=tmp_path, env=environment, pass_fds=[listener.fileno()], umask=0o022)
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert process.wait(30) == 0
    assert lines == [f"first {process.pid}", f"second {process.pid} yes {tmp_path} umask 022 listens True"]


STUCK = """
import atexit, threading
from regroup.service.local.server_exit import end_within
threading.Thread(target=threading.Event().wait).start()
end_within(0.5, code=3)
print("main thread has ended", flush=True)
"""

RESTARTED = """
import os, socket, sys
from regroup.service.local.server_exit import LISTENER, StartConditions
if LISTENER not in os.environ:
    conditions = StartConditions()
    print("first", os.getpid())
    os.umask(0o077); os.environ["KEPT"] = "no"; os.environ["REGROUP_UMASK"] = "022"; os.chdir("/")
    conditions.restart(int(os.environ["SOCKET"]))
held = socket.socket(fileno=int(os.environ[LISTENER]))
listens = bool(held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
print("second", os.getpid(), os.environ["KEPT"], os.getcwd(), "umask", os.environ["REGROUP_UMASK"], "listens", listens)
"""
