"""`regroup probe` on two real nodes: queued, placed and run like any job; what it measured is then known."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from house.served import Served


@pytest.mark.slow
def test_a_probe_measures_two_nodes_and_what_is_between_them(served: Served, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regroup.api.cli", "probe", "--server", served.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 ranks of " in done.stdout and "out of a gpu_domain" in done.stdout
    shown = subprocess.run([*command[:4], "show", "--json", *command[4:]], capture_output=True, text=True, timeout=60)
    (probe,) = json.loads(shown.stdout)["probes"]
    assert {each["name"] for each in probe["nodes"]} == {"local-1", "local-2"}
    assert all(each["ranks"] == 2 and each["flops"]["fp32"] > 1e8 for each in probe["nodes"])
    levels = {each["level"]: each for each in probe["levels"]}
    assert set(levels) == {"device", "gpu_domain"} and levels["gpu_domain"]["pairs"] == 1
    assert all(each["bytes_s"] > 1e6 and 0 < each["latency_s"] < 1 for each in levels.values())
    assert not [each for each in probe["odd"] if each["measure"] == "result"]
    (job,) = served.client.jobs(name="probe-cpu")
    assert (job.id, job.state) == (probe["job_id"], "SUCCEEDED")
