"""The benchmark of the console with tiny sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regroup.service.local.api_token import VARIABLES


@pytest.mark.postgres
@pytest.mark.browser
@pytest.mark.slow
def test_it_writes_the_figures_of_all_parts(tmp_path: Path) -> None:
    target = tmp_path / "console.json"
    command = [sys.executable, "-m", "benchmarks.console", "--smoke", "--no-tasks", "--json", str(target)]
    as_typed = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=as_typed)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(target.read_text())
    assert 10_000 < found["first_load_bytes_compressed"] < 200_000 and found["first_load_requests"] > 3
    assert found["job_list_100000_p95_s"] > 0 and len(found["job_list"]["times_s"]) == 3
    assert found["event_to_page"]["missed"] == 0 and found["event_to_page_p95_s"] < 10
    assert 0 < found["overview_100000_jobs_p95_s"] < 10 and found["overview"]["unchanged_p95_s"] > 0
    assert found["pages_100"]["pages"] == 3 and found["pages_100"]["server_cores"] < 2
    assert found["accessibility"]["found"] == {} and found["accessibility"]["pages"] > 20
