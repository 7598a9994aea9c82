"""Activity of real processes: one computes, one prints, one only sleeps."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.agent.ranks.activity import ActivityMonitor, RunningRank
from regroup.workers.contract.messages import Phase
from regroup.workers.contract.progress_page import ProgressPage, new_page

SLEEPS = "import time; time.sleep(1000)"
CHILD_COMPUTES = "import os, time\nif os.fork() == 0:\n    while True: pass\ntime.sleep(1000)"
PRINTS = "import time\nwhile True: print('on', flush=True); time.sleep(0.05)"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[RunningRank]]:
    """Three ranks: one sleeps, one has a child that computes, one prints."""
    ranks: list[RunningRank] = []
    processes: list[subprocess.Popen[bytes]] = []
    for rank, source in enumerate((SLEEPS, CHILD_COMPUTES, PRINTS)):
        log = tmp_path / f"{rank}.out"
        with log.open("wb") as out:
            processes.append(subprocess.Popen([sys.executable, "-c", source], stdout=out, start_new_session=True))
        progress = ProgressPage(new_page())
        progress.set(3, Phase.FORWARD)
        ranks.append(RunningRank(rank, processes[-1].pid, progress, (log,)))
    yield ranks
    for process in processes:
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)
        process.wait()


def test_a_rank_that_neither_computes_nor_prints_is_idle(ranks: list[RunningRank]) -> None:
    monitor, deadline = ActivityMonitor(), time.monotonic() + 30
    while (activities := monitor.poll(ranks))[0].idle_s < 2.5 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert activities[0].idle_s >= 2.5
    assert [(each.step, each.phase) for each in activities.values()] == [(3, "forward")] * 3
    assert all(each.stalled_s > 4 for each in activities.values())
    assert activities[1].idle_s < 1.5 and activities[2].idle_s < 1.5
    ranks[0].progress.set(4, Phase.FORWARD)
    assert monitor.poll(ranks)[0].stalled_s < 1


def test_a_suspended_node_reports_no_stalled_rank() -> None:
    now = [time.monotonic() + 100]
    monitor, progress = ActivityMonitor(lambda: now[0]), ProgressPage(new_page())
    progress.set(1, Phase.FORWARD)
    running = [RunningRank(0, None, progress)]
    now[0] += 60
    assert monitor.poll(running)[0].stalled_s == 0
    now[0] += 1
    assert monitor.poll(running)[0].stalled_s <= 1
