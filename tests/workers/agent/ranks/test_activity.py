"""Signs of life of real processes: one that computes, one that prints, one that only sleeps."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regroup.workers.agent.ranks.activity import ActivityMonitor, Standing
from regroup.workers.contract.messages import Phase
from regroup.workers.contract.progress_page import ProgressPage, new_page

SLEEPS = "import time; time.sleep(1000)"
CHILD_COMPUTES = "import os, time\nif os.fork() == 0:\n    while True: pass\ntime.sleep(1000)"
PRINTS = "import time\nwhile True: print('on', flush=True); time.sleep(0.05)"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[Standing]]:
    """One rank each that sleeps, that has a child which computes, and that prints."""
    made: list[Standing] = []
    processes: list[subprocess.Popen[bytes]] = []
    for rank, source in enumerate((SLEEPS, CHILD_COMPUTES, PRINTS)):
        log = tmp_path / f"{rank}.out"
        with log.open("wb") as out:
            processes.append(subprocess.Popen([sys.executable, "-c", source], stdout=out, start_new_session=True))
        progress = ProgressPage(new_page())
        progress.set(3, Phase.FORWARD)
        made.append(Standing(rank, processes[-1].pid, progress, (log,)))
    yield made
    for process in processes:
        subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=True)
        process.wait()


def test_a_rank_that_neither_computes_nor_prints_is_idle(ranks: list[Standing]) -> None:
    dwelling, deadline = ActivityMonitor(), time.monotonic() + 30
    while (seen := dwelling.look(ranks))[0].idle_s < 2.5 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert seen[0].idle_s >= 2.5
    assert [(dwell.step, dwell.phase) for dwell in seen.values()] == [(3, "forward")] * 3
    assert all(dwell.stalled_s > 4 for dwell in seen.values())
    assert seen[1].idle_s < 1.5 and seen[2].idle_s < 1.5
    ranks[0].progress.set(4, Phase.FORWARD)
    assert dwelling.look(ranks)[0].stalled_s < 1


def test_a_node_that_was_itself_asleep_blames_nobody() -> None:
    now = [time.monotonic() + 100]
    dwelling, progress = ActivityMonitor(lambda: now[0]), ProgressPage(new_page())
    progress.set(1, Phase.FORWARD)
    standing = [Standing(0, None, progress)]
    now[0] += 60
    assert dwelling.look(standing)[0].stalled_s == 0
    now[0] += 1
    assert dwelling.look(standing)[0].stalled_s <= 1
