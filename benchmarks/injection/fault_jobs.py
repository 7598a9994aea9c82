"""Jobs into which the faults benchmark injects a plan."""

from pathlib import Path
from typing import Any

from benchmarks.peers.workload import Workload
from regroup.api.chaos.runner import run_plan
from regroup.api.chaos.server_process import LocalService
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.observation import Record

_STEP_LIMIT_S, _INJECTION_LIMIT_S = 2.0, 60.0
"""Time limits. A slower machine is not suitable for measurements."""


def run_job(service: LocalService, root: Path, plan: FaultPlan, injections: int = 0, **parts: Any) -> Record:
    """Run one job of the workload under a plan and return its record."""
    workload = Workload(text=str(root / "text"), steps=plan.steps)
    budgets = dict.fromkeys(("rank_exit", "node_loss", "hang", "io_error"), 10 + 2 * injections)
    spec = workload.job_spec(plan.scenario.replace("_", "-"), recovery={"budgets": budgets}, **parts)
    within_s = 120 + _STEP_LIMIT_S * plan.steps + _INJECTION_LIMIT_S * injections
    return run_plan(
        service, spec, plan, timeout_s=within_s, notify=lambda text: print(f"{plan.scenario}: {text}", flush=True)
    )
