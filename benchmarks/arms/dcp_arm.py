"""Checkpoints of torch DCP: four ranks that save with `async_save`, and four new ranks that load."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arms.bare_ranks import bare_ranks
from benchmarks.peers.workload import Workload
from benchmarks.tiers import limits
from benchmarks.trials.trial import TrialError


@dataclass(frozen=True)
class DcpTimes:
    """Seconds of the slowest rank."""

    blocked_s: tuple[float, ...]
    """Time for which training was blocked by each save."""
    restored_s: float
    """Time from formed ranks to a model with the state, loaded from the disk."""


def run(workload: Workload, folder: Path, saves: int = 3) -> DcpTimes:
    """Save and load the state of the workload's model.

    Raises:
        TrialError: a rank failed.
    """
    settings = {"model": workload.model, "folder": str(folder / "checkpoints"), "saves": saves}
    try:
        blocked = _run({**settings, "mode": "save"}, folder)
        limits.drop_cached((folder / "checkpoints").rglob("*.distcp"))
        return DcpTimes(tuple(blocked), _run({**settings, "mode": "load"}, folder)[0])
    finally:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _run(settings: dict[str, object], folder: Path) -> list[float]:
    result = folder / f"{settings['mode']}.json"
    with bare_ranks("checkpoint_loop", f"dcp-{settings['mode']}", {**settings, "result": str(result)}, folder):
        pass
    if not result.exists():
        raise TrialError(f"torch DCP: no result of {settings['mode']}")
    return json.loads(result.read_text())
