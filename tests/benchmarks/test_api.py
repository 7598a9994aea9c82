"""The benchmark of the API with tiny sizes, and its hostile bodies."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.api import SPEC
from benchmarks.requests.hostile import hostile_bodies
from regroup.service.local.api_token import VARIABLES


@pytest.mark.postgres
@pytest.mark.slow
def test_it_writes_the_figures_of_all_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.api", "--smoke", "--trials", "2", "--json", str(tmp_path / "api.json")]
    as_typed = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=as_typed)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((tmp_path / "api.json").read_text())
    for database in ("sqlite", "postgresql"):
        assert found[database]["submit_ratio"] > 0 and len(found[database]["rounds"]) == 2
    assert found["get_p99_growth"] > 0 and found["metrics_100000_jobs_s"] > 0
    followers = found["followers_1000"]
    assert (followers["lost"], followers["disordered"], followers["followers"]) == (0, 0, 20)
    assert 0 < found["identity_cost"] < 1
    assert found["hostile_bodies"]["count"] > 400 and found["hostile_body_p99_s"] > 0


def test_hostile_bodies_are_always_the_same_and_not_only_damaged_specs() -> None:
    bodies = hostile_bodies(SPEC)
    assert bodies == hostile_bodies(SPEC) and len(bodies) > 400
    assert max(map(len, bodies)) > 800_000 and any(body.startswith(b"[" * 3000) for body in bodies)
    readable = 0
    for body in bodies:
        try:
            readable += isinstance(json.loads(body), dict)
        except (ValueError, RecursionError):
            continue
    assert 30 < readable < len(bodies) - 100
