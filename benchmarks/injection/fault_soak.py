"""A long run with a fault about every 20 s: once with the mix of fault kinds and once with rank exits only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.injection.fault_jobs import run_job
from benchmarks.injection.fault_rows import OFTEN_MIRRORED
from benchmarks.peers.workload import NODES, RANKS, SLOTS
from benchmarks.report.facts import machine_facts
from benchmarks.trials import stats
from regroup.api.chaos.server_process import LocalService
from regroup.service.chaos import fault_plan as plans
from regroup.service.chaos.fault_plan import NODE_LOSS_FAULTS, FaultPlan
from regroup.service.chaos.observation import Record
from regroup.service.local import leftovers, ray_cluster
from regroup.service.policy.accounting import TimeClass, goodput

_EVERY_S = 20.0
_MIXES: Mapping[str, Mapping[str, float]] = {"mix": plans.MIX, "rank_exits": {"rank_exit": 1.0}}
_CALIBRATION_STEPS = 40


def run(root: Path, minutes: float, seed: int, failures: list[str]) -> dict[str, Any]:
    """Run both mixes and a control run without faults on one service with a spare node, and compare the results."""
    document: dict[str, Any] = {"minutes": minutes, "measured_on": machine_facts()}
    with LocalService(root / "soak", nodes=NODES + 1, slots=SLOTS) as service:
        step_s = _step_s(run_job(service, root, FaultPlan("calibration", seed, _CALIBRATION_STEPS)))
        steps, every = int(60 * minutes / step_s), max(12, round(_EVERY_S / step_s))
        control = run_job(service, root, FaultPlan("control", seed, steps))
        equal, leaks = True, list[str]()
        for name, mix in _MIXES.items():
            before = _held(service)
            plan = plans.plan_soak(seed, steps=steps, every=every, ranks=RANKS, nodes=NODES, mix=mix)
            count = len(plan.faults) + len(plan.external_faults)
            record = run_job(service, root, plan, count, snapshot=OFTEN_MIRRORED)
            failures += [f"soak, {name}: {problem}" for problem in short_of(plan, record)]
            if record.job["state"] != "SUCCEEDED":
                failures.append(f"soak, {name}: job ended {record.job['state']}: {record.job['message']}")
            equal = equal and record.job["digest"] == control.job["digest"]
            leaks += [*record.leftovers, *leftovers.describe_growth(before, _held(service))]
            document[f"goodput_{name}"] = _goodput(record)
            document[name] = {
                "planned": count,
                "incidents": len(record.incidents),
                "external_faults": len(record.injected),
                "seconds": dict(record.seconds),
            }
    return {**document, "step_s": step_s, "steps": steps, "bitwise_equal": equal, "leaks": len(leaks), "left": leaks}


def short_of(plan: FaultPlan, record: Record) -> list[str]:
    """Return a message for each kind of planned fault that was not injected. A soak without them would be too easy."""
    incidents = len(plan.faults) + sum(fault.do in NODE_LOSS_FAULTS for fault in plan.external_faults)
    counts = {
        "incidents": (incidents, len(record.incidents)),
        "external faults": (len(plan.external_faults), len(record.injected)),
    }
    return [
        f"{planned} {what} were planned, {seen} were observed"
        for what, (planned, seen) in counts.items()
        if seen < planned
    ]


def _goodput(record: Record) -> float | None:
    return goodput({TimeClass(kind): value for kind, value in record.seconds.items()})


def _step_s(record: Record) -> float:
    return stats.median([row["duration_s"] for row in record.rows if row["duration_s"] is not None])


def _held(service: LocalService) -> leftovers.DaemonResources:
    cluster = ray_cluster.load(service.state_dir)
    return leftovers.inspect_daemons(cluster.daemons if cluster is not None else ())
