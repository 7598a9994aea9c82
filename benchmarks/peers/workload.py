"""The common workload of all arms: the same model, batch, optimizer and text for regroup and for every peer."""

import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

RANKS = 4
NODES = 2
SLOTS = 2


@dataclass(frozen=True)
class Workload:
    """Sizes of the model and of a step. The default takes 0.1–0.3 s per step with four ranks on two cores."""

    text: str
    """Folder of text files."""
    steps: int
    dim: int = 128
    layers: int = 4
    heads: int = 4
    sequence: int = 256
    global_batch: int = 8
    micro_batch: int = 2
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @property
    def model(self) -> dict[str, Any]:
        """Model in the format of the job spec."""
        return {
            "family": "transformer", "dim": self.dim, "layers": self.layers, "heads": self.heads, "vocab_size": 257,
            "rope_theta": 10_000.0, "norm_eps": 1e-5, "tie_embeddings": False,
        }  # fmt: skip

    def job_spec(self, name: str, **more: Any) -> dict[str, Any]:
        """Return the job spec of this workload, with the additional top-level fields `more`."""
        return {
            "name": name,
            "workload": {"kind": "builtin", "model": self.model, "data": {"train": [self.text]}},
            "layout": {"dp": RANKS, "data_parallel": "fsdp"},
            "resources": {"device": "cpu", "cpus": 1},
            "training": {
                "global_batch": self.global_batch, "micro_batch": self.micro_batch, "sequence": self.sequence,
                "steps": self.steps,
                "optimizer": {
                    "lr": self.lr, "betas": list(self.betas), "eps": self.eps, "weight_decay": self.weight_decay,
                    "clip_norm": self.clip_norm,
                },
                "schedule": {"name": "constant"},
            },
            "snapshot": {"every_steps": 1},
            "seed": self.seed,
            **more,
        }  # fmt: skip


def write_text(folder: Path, size_bytes: int = 2_000_000) -> None:
    """Copy sources of the standard library into `folder` until it contains `size_bytes`. Every machine has them."""
    folder.mkdir(parents=True)
    total = 0
    for source in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        data = source.read_bytes()
        (folder / f"{source.stem}.txt").write_bytes(data)
        total += len(data)
        if total >= size_bytes:
            return


class Text:
    """The text as bytes, split into sequences in random order, as a careful user would write it."""

    def __init__(self, workload: Workload) -> None:
        import torch

        data = b"".join(path.read_bytes() for path in sorted(Path(workload.text).iterdir()))
        self._tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._workload = workload
        count = (len(data) - 1) // workload.sequence
        self._order = torch.randperm(count, generator=torch.Generator().manual_seed(workload.seed))

    def micro_batch(self, step: int, index: int) -> "torch.Tensor":
        """Return the tokens of the `index`-th micro-batch of a step. Shape: (micro_batch, sequence + 1).

        Steps count from 1, micro-batches from 0.
        """
        import torch

        size, length = self._workload.micro_batch, self._workload.sequence
        first = (step - 1) * self._workload.global_batch + index * size
        starts = [int(self._order[(first + row) % len(self._order)]) * length for row in range(size)]
        return torch.stack([self._tokens[start : start + length + 1].long() for start in starts])
