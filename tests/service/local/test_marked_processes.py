import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

from regroup.service.local.marked_processes import MARK, end_marked, marked

# A child that detaches a grandchild and ends: nothing but the inherited mark leads to the grandchild.
DETACH = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"


def test_a_detached_grandchild_is_found_and_ended() -> None:
    mark = f"/tmp/{uuid4().hex}"
    subprocess.run([sys.executable, "-c", DETACH], env={**os.environ, MARK: mark}, check=True)
    assert list(marked(mark).values()) == ["sleep 60"]
    assert list(end_marked(mark, patience_s=0.1).values()) == ["sleep 60"]
    assert marked(mark) == {}


def test_what_ends_by_itself_is_waited_for_and_not_killed() -> None:
    mark = f"/tmp/{uuid4().hex}"
    child = subprocess.Popen(["sleep", "0.3"], env={**os.environ, MARK: mark})
    try:
        assert len(marked(mark)) == 1
        assert end_marked(mark, patience_s=10.0) == {}
    finally:
        child.wait()


def test_a_mark_in_the_command_line_counts_too_and_another_mark_does_not(tmp_path: Path) -> None:
    mark, other = f"/tmp/{uuid4().hex}", f"/tmp/{uuid4().hex}"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", mark])
    try:
        deadline = time.monotonic() + 5
        while not marked(mark) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(marked(mark)) == [child.pid] and marked(other) == {}
    finally:
        child.kill()
        child.wait()
