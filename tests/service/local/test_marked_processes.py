import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

from regroup.service.local.marked_processes import MARK, find_marked, stop_marked

# A child that detaches a grandchild and exits: only the inherited mark identifies the grandchild.
DETACH = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"


def test_a_detached_grandchild_is_found_and_killed() -> None:
    mark = f"/tmp/{uuid4().hex}"
    subprocess.run([sys.executable, "-c", DETACH], env={**os.environ, MARK: mark}, check=True)
    assert list(find_marked(mark).values()) == ["sleep 60"]
    assert list(stop_marked(mark, timeout_s=0.1).values()) == ["sleep 60"]
    assert find_marked(mark) == {}


def test_a_process_that_exits_in_time_is_not_killed() -> None:
    mark = f"/tmp/{uuid4().hex}"
    child = subprocess.Popen(["sleep", "0.3"], env={**os.environ, MARK: mark})
    try:
        assert len(find_marked(mark)) == 1
        assert stop_marked(mark, timeout_s=10.0) == {}
    finally:
        child.wait()


def test_a_mark_in_the_command_line_counts_but_another_mark_does_not(tmp_path: Path) -> None:
    mark, other = f"/tmp/{uuid4().hex}", f"/tmp/{uuid4().hex}"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", mark])
    try:
        deadline = time.monotonic() + 5
        while not find_marked(mark) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(find_marked(mark)) == [child.pid] and find_marked(other) == {}
    finally:
        child.kill()
        child.wait()
