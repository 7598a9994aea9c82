"""A local Ray cluster on a busy machine: a raylet ends because its agent is late, and the node starts again."""

import itertools
import os
from pathlib import Path

import pytest

from regroup.service.local import ray_cluster
from regroup.service.settings import Settings

LATE_S = 17.0
"""Longer than a raylet waits for the ports of its dashboard agent (15 s)."""
SITECUSTOMIZE = """
import os, sys, time
if any("dashboard/agent.py" in argument for argument in sys.orig_argv):
    number = 0
    while True:
        try:
            os.close(os.open(f"{FOLDER}/agent-{number}", os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            number += 1
    if number in LATE:
        time.sleep(LATE_S)
"""


@pytest.mark.slow
@pytest.mark.parametrize("late", [{0}, {1, 2}], ids=["the head", "a node, twice"])
def test_a_node_whose_raylet_ended_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: set[int]
) -> None:
    (tmp_path / "path").mkdir()
    values = f"FOLDER, LATE, LATE_S = {str(tmp_path)!r}, {late!r}, {LATE_S}\n"
    (tmp_path / "path" / "sitecustomize.py").write_text(values + SITECUSTOMIZE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "path"), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "state").mkdir()
    settings = Settings(state_dir=tmp_path / "state", local_nodes=1, local_gpus_per_node=0)
    try:
        cluster = ray_cluster.start(settings)
        started = next(number for number in itertools.count() if not (tmp_path / f"agent-{number}").exists())
        assert started == 2 + len(late), "the late agents did not end their raylets"
        assert set(cluster.raylets) == {"control", "local-1"} and cluster.is_alive
        assert cluster.lost_nodes == []
    finally:
        ray_cluster.stop(settings.state_dir)
