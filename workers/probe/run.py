"""`regroup probe` as training code: each step measures one thing, and the results are the state that survives.

The result is plain data under `probe`, which `service/policy/measurements/results.py` reads:

- `device`, `kind`, `torch`: name and type of the devices, and torch's version.
- `nodes`: per node, its `ranks`, its `inside` topology (`workers/os/device_topology.py`), and `flops` by data type and
  `memory_bytes_s` of its slowest device.
- `matmuls`: [data type, side, FLOP/s: the median of all ranks].
- `collectives`: [name, scope, ranks, bytes, seconds, ranks with a wrong result].
- `rings`: scope → [ranks, bytes/s, seconds per message].
- `pairs`: [node, node, bytes/s, seconds per message].

The rest is measured on CPUs only:

- `blocks`: [batch, sequence, width, heads, feed-forward width, seconds].
- `steps`: [kind, layers, micro-batches, seconds]; see `training_steps.py`.
- `loads`: steps that compute, with [batch, sequence, width, heads, feed-forward width, vocabulary] before the seconds.
- `alone_flops`: FLOP/s of one rank while all others wait.
- `rank_bytes`: largest memory of a rank's process with a minimal model.

Scopes are `all` ranks, and `node`: the ranks of each node among themselves, all nodes at once.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from statistics import median
from typing import Any, cast

import torch
from torch import distributed as dist

from regroup.workers.contract.messages import Phase
from regroup.workers.os import device_topology
from regroup.workers.probe import collectives, links, matmul, training_steps
from regroup.workers.probe.rank_map import RankMap
from regroup.workers.probe.timing import Clock, gathered
from regroup.workers.rank.context import Context

SIZES_BYTES = {"cpu": (4 << 10, 64 << 10, 1 << 20, 8 << 20), "cuda": (64 << 10, 1 << 20, 16 << 20, 256 << 20)}
"""Sizes of collectives."""
LINK_BYTES = {"cpu": 4 << 20, "cuda": 64 << 20}
"""Size of a message between two ranks."""


def measure(run: Context) -> None:
    """Measure in as many steps as the spec has. There must be one for each of `stages`."""
    probe = _Probe(run)
    run.track(measured=probe.measured)
    stages = probe.stages()
    for step in run.steps(len(stages)):
        stages[step - 1]()
        run.phase(Phase.OPTIMIZER)
    run.result = {"probe": probe.measured.found}


class _Measured:
    """The results so far, equal on all ranks."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return self.found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.found.update(state)


class _Probe:
    def __init__(self, run: Context) -> None:
        self.measured = _Measured()
        self._run, self._device = run, run.device
        self._clock = Clock(run.device)
        self._rank_map = RankMap.of([int(cast(int, node)) for node in gathered(int(os.environ.get("GROUP_RANK", "0")))])
        name = torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else platform.machine()
        names = sorted({str(each) for each in gathered(name)})
        inside = gathered(device_topology.read())
        nodes = [{"ranks": list(ranks), "inside": inside[ranks[0]]} for ranks in self._rank_map.nodes]
        self.measured.found.update(
            device=", ".join(names), kind=run.device.type, torch=str(torch.__version__), nodes=nodes, matmuls=[],
            collectives=[], rings={}, pairs=[], blocks=[], steps=[], loads=[],
            alone_flops=None, rank_bytes=None,
        )  # fmt: skip

    def stages(self) -> list[Callable[[], None]]:
        """Return the measurements, in order."""
        return [
            self._memory,
            self._matmuls,
            lambda: self._collectives("all"),
            lambda: self._collectives("node"),
            self._links,
            self._blocks,
            self._steps,
            self._loads,
        ]

    def _memory(self) -> None:
        if self._device.type == "cpu":
            self._found["rank_bytes"] = _digits(training_steps.rank_bytes(self._run, self._clock))

    def _matmuls(self) -> None:
        own = matmul.matmuls(self._clock, self._device)
        memory = matmul.memory_bytes_s(self._clock, self._device)
        every = cast(list[tuple[list[matmul.Matmul], float]], gathered((own, memory)))
        self._found["matmuls"] = [
            [each.dtype, each.side, _digits(median(theirs[at].flops for theirs, _ in every))]
            for at, each in enumerate(own)
        ]
        largest = max(each.side for each in own)
        for node in self._found["nodes"]:
            mine = [every[rank] for rank in node["ranks"]]
            node["memory_bytes_s"] = _digits(min(memory for _, memory in mine))
            node["flops"] = {
                each.dtype: _digits(min(theirs[at].flops for theirs, _ in mine))
                for at, each in enumerate(own)
                if each.side == largest
            }

    def _collectives(self, scope: str) -> None:
        group = self._group(scope)
        if group is None:
            return
        for size in SIZES_BYTES[self._device.type]:
            checked = collectives.measure(self._clock, self._device, group, size)
            every = cast(list[list[collectives.Checked]], gathered(checked))
            self._found["collectives"] += [
                [
                    each.name, scope, group.size(), each.size_bytes, _digits(each.seconds),
                    [rank for rank, theirs in enumerate(every) if not theirs[at].is_right],
                ]
                for at, each in enumerate(checked)
            ]  # fmt: skip

    def _links(self) -> None:
        size = LINK_BYTES[self._device.type]
        scopes = [scope for scope in ("all", "node") if self._ranks(scope) > 1]
        for scope in scopes:
            found = links.ring(self._clock, self._device, self._rank_map, size, inside=scope == "node")
            self._found["rings"][scope] = [self._ranks(scope), *found]
        if len(self._rank_map.nodes) > 1:
            self._found["pairs"] = links.pairs(self._clock, self._device, self._rank_map, size)

    def _blocks(self) -> None:
        if self._device.type == "cpu":
            found = training_steps.blocks(self._clock, self._device)
            self._found["blocks"] = [
                [each.batch, each.sequence, each.dim, each.heads, each.ffn, _digits(each.seconds)] for each in found
            ]
            self._found["alone_flops"] = _digits(training_steps.alone_flops(self._clock, self._device, self._run.rank))

    def _steps(self) -> None:
        if self._device.type == "cpu":
            found = training_steps.steps(self._run, self._clock, training_steps.TINY, training_steps.DEPTHS)
            self._found["steps"] = [
                [each.kind, each.layers, each.micro_batches, _digits(each.seconds)] for each in found
            ]

    def _loads(self) -> None:
        if self._device.type == "cpu":
            found = training_steps.steps(self._run, self._clock, training_steps.LOADED, training_steps.LOADED_DEPTHS)
            self._found["loads"] = [
                [
                    each.kind,
                    each.layers,
                    each.micro_batches,
                    list(astuple(training_steps.LOADED)),
                    _digits(each.seconds),
                ]
                for each in found
            ]

    def _group(self, scope: str) -> dist.ProcessGroup | None:
        """Return the ranks of one collective; None if a group would have one rank, or equals all ranks."""
        if self._ranks(scope) < 2:
            return None
        if scope == "all":
            return dist.group.WORLD
        mine: Sequence[int] = next(ranks for ranks in self._rank_map.nodes if self._run.rank in ranks)
        return cast(dist.ProcessGroup, dist.new_group(list(mine), use_local_synchronization=True))

    def _ranks(self, scope: str) -> int:
        """Return the number of ranks of a scope.

        For `node`, it is that of the smallest node, or 1 if there is only one node.
        """
        if scope == "all":
            return self._run.world_size
        return self._rank_map.lanes if len(self._rank_map.nodes) > 1 else 1

    @property
    def _found(self) -> dict[str, Any]:
        return self.measured.found


def _digits(value: float) -> float:
    """Round to four digits: more is noise, and the result must fit into one message."""
    return float(f"{value:.4g}")
