"""Specs that leave their layout to the planner, and nodes to plan for."""

from typing import Any

from regroup.service.domain.topology import ACCELERATOR_LABEL, Node
from regroup.service.spec.job import JobSpec, parse_spec

SMALL = {"dim": 64, "layers": 4, "heads": 4, "vocab_size": 264}
LLAMA_7B = {"dim": 4096, "layers": 32, "heads": 32, "ffn_dim": 11008, "vocab_size": 32000}


def auto_json(layout: object = "auto", model: dict[str, Any] = SMALL, device: str = "cpu", **training: Any) -> Any:
    """Return a spec whose layout, micro-batch and activation checkpointing are open, unless `training` sets them."""
    steps = {"global_batch": 16, "sequence": 64, "steps": 10}
    return {
        "name": "gpt",
        "workload": {"kind": "builtin", "model": model, "data": {"train": ["/data/*.txt"]}},
        "resources": {"device": device},
        "training": {**steps, **training},
        "layout": layout,
    }


def auto(layout: object = "auto", model: dict[str, Any] = SMALL, device: str = "cpu", **training: Any) -> JobSpec:
    """Return the parsed spec of `auto_json`."""
    return parse_spec(auto_json(layout, model, device, **training))


def cpu_nodes(*cores: int) -> list[Node]:
    """Return a node with 8 GB for each number of cores."""
    return [
        Node(f"n{number}", f"local-{number}", "::1", cpus=each, free_cpus=each, memory_bytes=8 * 10**9)
        for number, each in enumerate(cores, 1)
    ]


def gpu_nodes(count: int, gpus: int = 8, name: str = "A100-80G") -> list[Node]:
    """Return nodes with this number of GPUs each."""
    return [
        Node(f"n{number}", f"gpu-{number}", "::1", labels={ACCELERATOR_LABEL: name}, cpus=128, gpus=gpus,
             memory_bytes=10**12)
        for number in range(1, count + 1)
    ]  # fmt: skip
