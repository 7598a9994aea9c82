"""Arguments of the programs of stages, and sizes for a GPU and for a dry run."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.values import Values
from benchmarks.report.output import end_tidily_on_sigterm

TEXT = "The quick brown fox jumps over the lazy dog. " * 4000


@dataclass(frozen=True)
class Given:
    """Arguments of a program."""

    values: Values
    folder: Path
    device: str

    @property
    def is_dry(self) -> bool:
        """True on the CPU: toy sizes, which only show that the program works."""
        return self.device == "cpu"


def parse(description: str | None) -> Given:
    """Parse the arguments that the runner appends, and create the folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--values", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    given = parser.parse_args()
    end_tidily_on_sigterm()  # zygotes and servers have process groups of their own
    given.folder.mkdir(parents=True)
    return Given(Values(given.values), given.folder, given.device)


@dataclass(frozen=True)
class Size:
    """A transformer and its batch."""

    name: str
    dim: int
    layers: int
    heads: int
    sequence: int
    micro_batch: int

    @property
    def model(self) -> dict[str, Any]:
        """The spec's `workload.model`."""
        return {"dim": self.dim, "layers": self.layers, "heads": self.heads}


TOY = Size("toy", 64, 2, 4, 64, 2)
SMALL = Size("100M", 768, 12, 12, 1024, 8)
LARGE = Size("1B", 2048, 20, 16, 2048, 4)
"""About 1.0 billion parameters in its blocks; states of AdamW in fp32 take 16 bytes per parameter."""


def spec(given: Given, size: Size, *, steps: int, name: str, ranks: int = 1, **training: Any) -> dict[str, Any]:
    """Return the spec of a job that trains a model of this size on text in the folder, one snapshot per step."""
    text = given.folder / "text.txt"
    if not text.exists():
        text.write_text(TEXT)
    return {
        "name": name,
        "workload": {"kind": "builtin", "model": size.model, "data": {"train": [str(text)], "tokenizer": "byte"}},
        "training": {
            "global_batch": size.micro_batch * ranks, "micro_batch": size.micro_batch, "sequence": size.sequence,
            "steps": steps, "precision": "bf16", **training,
        },
        "layout": {"dp": ranks},
        "snapshot": {"every_steps": 1, "mirror": "off"},
        "resources": {"device": given.device},
        "determinism": "strict",
    }  # fmt: skip
