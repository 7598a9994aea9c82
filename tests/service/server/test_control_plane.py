import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regroup.service.domain.errors import ConflictError
from regroup.service.local import processes
from regroup.service.server import control_plane


def test_a_second_server_is_refused_with_the_address_of_the_first(tmp_path: Path) -> None:
    control_plane.refuse_second(tmp_path)
    control_plane.write_record(tmp_path, "http://127.0.0.1:1", None, tmp_path / "api.token")
    with pytest.raises(ConflictError, match=rf"process {os.getpid()} at http://127.0.0.1:1"):
        control_plane.refuse_second(tmp_path)


def test_a_stale_record_or_a_reused_pid_does_not_block_a_server(tmp_path: Path) -> None:
    record = control_plane.write_record(tmp_path, "http://127.0.0.1:1", None, tmp_path / "api.token")
    other = {"url": record.url, "dashboard_url": None, "pid": record.pid, "started": record.started - 1}
    (tmp_path / "server.json").write_text(json.dumps(other))
    control_plane.refuse_second(tmp_path)
    assert control_plane.end_all(tmp_path) == [], "no process is killed"
    assert control_plane.read_record(tmp_path) is None


def test_down_kills_the_recorded_process(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = processes.find_process(child.pid)
    assert process is not None
    record = {"url": "http://127.0.0.1:1", "dashboard_url": None, "pid": child.pid, "started": process.started}
    (tmp_path / "server.json").write_text(json.dumps(record))
    assert control_plane.end_all(tmp_path) == [f"server http://127.0.0.1:1 (process {child.pid})"]
    assert child.wait(timeout=5) != 0
    assert control_plane.end_all(tmp_path) == []


def test_detached_descendants_are_found_by_mark_and_by_parent() -> None:
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '60'], env={}, start_new_session=True); p.wait()"
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "REGROUP_TEST_MARK": "m1"})
    try:
        deadline = time.monotonic() + 10
        while len(found := processes.with_descendants(processes.find_marked("REGROUP_TEST_MARK", "m1"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert {process.pid for process in found} > {child.pid}
        processes.kill(found)
        assert not any(process.is_alive for process in found)
    finally:
        child.kill()
        child.wait()
