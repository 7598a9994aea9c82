"""Gate for the supervised trainer, without any code for it in the product.

The overhead benchmark names this module in the spec's `preload`, so the zygote imports it before it forks ranks. It
also sets `BENCHMARK_GATE` in the spec's `env`. `Context.commit` then ends at the gate. So all costs of a supervised
step inside the rank (control all-reduce, fault points, step row, snapshot) occur before the rank sends DONE.
"""

import os
import time
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.gates.gate import GateClient
from regroup.workers.rank.context import Context

GATE_VARIABLE = "BENCHMARK_GATE"
ARM = "supervised"

_gate: GateClient | None = None
_restore = Context.restore
_commit = Context.commit


@wraps(_restore)
def _gated_restore(self: Context, *args: Any, **kwargs: Any) -> Any:
    global _gate
    restored = _restore(self, *args, **kwargs)
    path = os.environ[GATE_VARIABLE]
    if self.rank == 0:
        Path(path + ".tokens").write_text(str(self.dataset["train"]))  # for the bare loop, which reads the same file
    _gate = GateClient(path, ARM, self.rank)
    _gate.wait()
    return restored


@wraps(_commit)
def _gated_commit(self: Context, *args: Any, **kwargs: Any) -> Any:
    go_on = _commit(self, *args, **kwargs)
    if _gate is not None:
        began = time.monotonic()
        _gate.step_done()
        self._schedule.exclude_from_step(time.monotonic() - began)  # pyright: ignore[reportPrivateUsage]
    return go_on


if GATE_VARIABLE in os.environ:
    Context.restore = _gated_restore
    Context.commit = _gated_commit
