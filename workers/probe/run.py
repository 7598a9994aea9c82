"""`regroup probe` as training code: each step measures one thing, and what was measured is the state that survives.

The result is plain data under `probe`, which `service/policy/measurements/results.py` reads:

    device, kind, torch
    nodes        node → its ranks, what is `inside` of it (`workers/os/device_topology.py`), and of the
                 slowest of its devices `flops` by dtype and `memory_bytes_s`
    products     [dtype, side, operations a second: the median of all ranks]
    collectives  [name, scope, ranks, bytes, seconds, ranks that got something else than they must]
    rings        scope → [ranks, bytes a second, seconds of a message]
    pairs        [node, node, bytes a second, seconds of a message]
    blocks       [batch, sequence, width, heads, width of the feed-forward, seconds]      from here on of CPUs alone
    steps        [kind, layers, micro-batches, seconds]                                    see `training_steps.py`
    loads        the same, of steps that compute, with [batch, sequence, width, heads, width of the feed-forward,
                 vocabulary] before the seconds
    alone_flops  operations a second of one rank while all others wait
    rank_bytes   what a rank's process takes that trains next to nothing, the largest

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
"""Of collectives."""
WAY_BYTES = {"cpu": 4 << 20, "cuda": 64 << 20}
"""Of a message between two ranks."""


def measure(run: Context) -> None:
    """Measure in as many steps as the spec has, which are those of `stages`."""
    probe = _Probe(run)
    run.track(measured=probe.measured)
    stages = probe.stages()
    for step in run.steps(len(stages)):
        stages[step - 1]()
        run.phase(Phase.OPTIMIZER)
    run.result = {"probe": probe.measured.found}


class _Measured:
    """What was found so far, alike on all ranks."""

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
        self._ground = RankMap.of([int(cast(int, node)) for node in gathered(int(os.environ.get("GROUP_RANK", "0")))])
        name = torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else platform.machine()
        names = sorted({str(each) for each in gathered(name)})
        inside = gathered(device_topology.read())
        nodes = [{"ranks": list(ranks), "inside": inside[ranks[0]]} for ranks in self._ground.nodes]
        self.measured.found.update(
            device=", ".join(names), kind=run.device.type, torch=torch.__version__, nodes=nodes, products=[],
            collectives=[], rings={}, pairs=[], blocks=[], steps=[], loads=[],
            alone_flops=None, rank_bytes=None,
        )  # fmt: skip

    def stages(self) -> list[Callable[[], None]]:
        """What is measured, in its order."""
        return [
            self._memory,
            self._products,
            lambda: self._collectives("all"),
            lambda: self._collectives("node"),
            self._ways,
            self._blocks,
            self._steps,
            self._loads,
        ]

    def _memory(self) -> None:
        if self._device.type == "cpu":
            self._found["rank_bytes"] = _digits(training_steps.rank_bytes(self._run, self._clock))

    def _products(self) -> None:
        own = matmul.products(self._clock, self._device)
        memory = matmul.memory_bytes_s(self._clock, self._device)
        every = cast(list[tuple[list[matmul.Matmul], float]], gathered((own, memory)))
        self._found["products"] = [
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

    def _ways(self) -> None:
        size = WAY_BYTES[self._device.type]
        scopes = [scope for scope in ("all", "node") if self._ranks(scope) > 1]
        for scope in scopes:
            found = links.ring(self._clock, self._device, self._ground, size, inside=scope == "node")
            self._found["rings"][scope] = [self._ranks(scope), *found]
        if len(self._ground.nodes) > 1:
            self._found["pairs"] = links.pairs(self._clock, self._device, self._ground, size)

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
        """The ranks that do a collective together; None where some would be alone, or are all of them anyway."""
        if self._ranks(scope) < 2:
            return None
        if scope == "all":
            return dist.group.WORLD
        mine: Sequence[int] = next(ranks for ranks in self._ground.nodes if self._run.rank in ranks)
        return cast(dist.ProcessGroup, dist.new_group(list(mine), use_local_synchronization=True))

    def _ranks(self, scope: str) -> int:
        """Ranks of a scope; of nodes those of the smallest. One node is the whole job."""
        if scope == "all":
            return self._run.world_size
        return self._ground.lanes if len(self._ground.nodes) > 1 else 1

    @property
    def _found(self) -> dict[str, Any]:
        return self.measured.found


def _digits(value: float) -> float:
    """Four of them: more is noise, and the result has to fit into one message."""
    return float(f"{value:.4g}")
