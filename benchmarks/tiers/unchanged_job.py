"""A job whose state is mostly frozen: bytes that its first and its second checkpoint write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.regroup_server import run_server
from benchmarks.trials.trial import TrialError

_EVERY_STEPS = 3
_WIDTH = 2048
_FROZEN_SHARE = 0.9
_RANKS = 4


@dataclass(frozen=True)
class UnchangedJob:
    """Figures of one job."""

    state_bytes: int
    frozen_share: float
    """Part of the state that never changes."""
    written_bytes: tuple[int, ...]
    """Bytes that each checkpoint wrote to storage."""
    stored_bytes: tuple[int, ...]
    """Bytes of its files, with those of the former checkpoint that it uses."""
    write_s: tuple[float, ...]

    @property
    def bytes_ratio(self) -> float:
        """Bytes written by the second checkpoint, relative to the first one."""
        return self.written_bytes[1] / self.written_bytes[0]


@dataclass(frozen=True)
class AdapterModel:
    """Sizes of the model: frozen square layers, each with a trainable low-rank product."""

    layers: int
    rank: int
    width: int = _WIDTH

    @classmethod
    def of(cls, state_gb: float) -> "AdapterModel":
        """Return a model whose state has about this size. Frozen parameters have no moments."""
        rank = round((1 - _FROZEN_SHARE) / _FROZEN_SHARE * _WIDTH / 6)
        layers = max(1, round(state_gb * 1e9 * _FROZEN_SHARE / (4 * _WIDTH**2)))
        return cls(layers, rank)

    @property
    def frozen_bytes(self) -> int:
        """Bytes that never change."""
        return self.layers * 4 * self.width**2

    @property
    def state_bytes(self) -> int:
        """Bytes of the state: frozen parameters, trainable ones, and both moments of these."""
        return self.frozen_bytes + self.layers * 12 * 2 * self.width * self.rank


def run(state_gb: float, folder: Path) -> UnchangedJob:
    """Run the job to its second checkpoint. No process remains.

    Raises:
        TrialError: the job did not succeed, or saved another number of checkpoints.
    """
    model = AdapterModel.of(state_gb)
    spec = {
        "name": "unchanged",
        "workload": {"kind": "function", "function": "adapter_loop:train"},
        "code": {"working_dir": str(Path(__file__).parents[1] / "peers")},
        "preload": ["adapter_loop"],
        "args": {"width": model.width, "layers": model.layers, "rank": model.rank},
        "training": {"steps": 2 * _EVERY_STEPS, "global_batch": 8, "micro_batch": 2},
        "layout": {"dp": _RANKS},
        "resources": {"device": "cpu", "cpus": 1},
        "snapshot": {"every_steps": 1, "mirror": "off"},
        "checkpoint": {"every_steps": _EVERY_STEPS, "keep_last": 2},
    }
    with run_server(folder) as server:
        job = server.finish(server.client.submit(spec).id)
        return read_job(model, [each.model_dump(mode="json") for each in server.client.events(job["id"])])


def read_job(model: AdapterModel, events: Sequence[Mapping[str, Any]]) -> UnchangedJob:
    """Compute the figures from the events of a finished job.

    Raises:
        TrialError: it did not save two checkpoints.
    """
    saved = [each["data"] for each in events if each["type"] == "checkpoint"]
    if len(saved) != 2:
        raise TrialError(f"two checkpoints were planned, but the job saved {len(saved)}")
    return UnchangedJob(
        model.state_bytes,
        model.frozen_bytes / model.state_bytes,
        tuple(each["written_bytes"] for each in saved),
        tuple(each["size_bytes"] for each in saved),
        tuple(each["duration_s"] for each in saved),
    )
