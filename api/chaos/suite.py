"""Execution of scenarios and soaks on a dedicated service, each with its control run."""

import shutil
import sysconfig
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regroup.api.chaos.runner import Notify, run_plan
from regroup.api.chaos.server_process import LocalService
from regroup.service.chaos import fault_plan as plans
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.observation import Record
from regroup.service.chaos.report import Outcome, judge_scenario, judge_soak
from regroup.service.chaos.scenarios import CHECKPOINT_EVERY, NODES, RANKS, Scenario
from regroup.service.domain.detectors import Detector
from regroup.service.domain.errors import UnavailableError

_SLOTS = RANKS // NODES
_START_S, _PER_STEP_S, _PER_FAULT_S = 180.0, 0.5, 30.0
_DISABLED_START_S, _DISABLED_PER_FAULT_S, _DISABLED_CONTROL_FACTOR = 20.0, 10.0, 3.0
"""Parts of the timeout if a detector is disabled: constants in seconds, and a multiple of the control run's time."""
_CALIBRATION_STEPS = 60
_SOAK_INTERVAL_S = 20.0
"""Approximate interval between faults."""
_TEXT_MODULES = ("argparse", "ast", "calendar", "dataclasses", "datetime", "difflib", "enum", "heapq")


@dataclass(frozen=True)
class Case:
    """A scenario to run."""

    scenario: Scenario
    seed: int
    disable_detectors: tuple[Detector, ...] = ()
    """Disabled detectors. Timeouts are short then, because faults may remain undetected."""


def run_cases(cases: Sequence[Case], notify: Notify) -> Iterator[tuple[Case, Outcome]]:
    """Run the cases and yield each outcome as soon as it is available.

    Scenarios that need a spare node run last, on a service that has one. The seed affects only the faults, so that all
    seeds share one control run.
    """
    for spares in sorted({case.scenario.spares for case in cases}):
        with _service(spares) as (service, root):
            controls: dict[tuple[int, str], Record] = {}
            for case in [each for each in cases if each.scenario.spares == spares]:
                scenario = case.scenario
                layout = {name: part for name, part in scenario.spec_fields.items() if name == "layout"}
                control_key = (scenario.steps, str(layout))
                if control_key not in controls:
                    notify(f"control run of {scenario.steps} steps")
                    controls[control_key] = _run(
                        service, root, FaultPlan("control", case.seed, scenario.steps), notify, **layout
                    )
                disabled = f", without detectors: {', '.join(case.disable_detectors)}" if case.disable_detectors else ""
                notify(f"{scenario.number} {scenario.name}{disabled}: {scenario.what}")
                plan, control = scenario.plan(case.seed), controls[control_key]
                timeout_s = _disabled_timeout_s(plan, control) if disabled else None
                record = _run(service, root, plan, notify, timeout_s, disable_detectors=list(case.disable_detectors))
                yield case, judge_scenario(scenario, case.seed, record, control)


def run_soak(minutes: float, seed: int, mix: Mapping[str, float], notify: Notify) -> Outcome:
    """Run a job of about `minutes` with a fault from `mix` every 20 s, after its control run."""
    with _service(spares=1) as (service, root):
        notify("measuring the step time")
        measured = _run(service, root, FaultPlan("calibration", seed, _CALIBRATION_STEPS), notify)
        durations = sorted(row["duration_s"] for row in measured.rows if row["duration_s"] is not None)
        step_s = durations[len(durations) // 2]
        steps, every = max(60, int(60 * minutes / step_s)), max(12, round(_SOAK_INTERVAL_S / step_s))
        plan = plans.plan_soak(seed, steps=steps, every=every, ranks=RANKS, nodes=NODES, mix=mix)
        notify(f"control run of {steps} steps of {step_s:.3f} s")
        control = _run(service, root, FaultPlan("control", seed, steps), notify)
        notify(f"soak: {len(plan.faults)} faults in the job, {len(plan.external_faults)} external faults")
        return judge_soak(_run(service, root, plan, notify, snapshot={"every_steps": 1, "mirror_share": 0.5}), control)


@contextmanager
def _service(spares: int) -> Generator[tuple[LocalService, Path]]:
    """Start a service in a temporary folder, which remains for inspection after an error."""
    root = Path(tempfile.mkdtemp(prefix="regroup-chaos-"))
    service = LocalService(root, nodes=NODES + spares, slots=_SLOTS)
    try:
        with service:
            for name in _TEXT_MODULES:
                (root / "text").mkdir(exist_ok=True)
                shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{name}.py", root / "text")
            yield service, root
        if service.killed:
            killed = "; ".join(f"{pid} {command[:100]}" for pid, command in service.killed.items())
            raise UnavailableError(f"the service did not exit and was killed: {killed}")
    except BaseException as error:
        error.add_note(f"the server's log and state are in {root}")
        raise
    shutil.rmtree(root, ignore_errors=True)


def _run(
    service: LocalService, root: Path, plan: FaultPlan, notify: Notify, timeout_s: float | None = None, **fields: Any
) -> Record:
    budgets = dict.fromkeys(
        ("rank_exit", "node_loss", "hang", "io_error"), 10 + len(plan.faults) + len(plan.external_faults)
    )
    spec = {
        "name": plan.scenario,
        "workload": {
            "kind": "builtin",
            "model": {"dim": 32, "layers": 2, "heads": 2},
            "data": {"train": [str(root / "text")]},
        },
        "training": {"global_batch": 8, "micro_batch": 2, "sequence": 64, "steps": plan.steps},
        "layout": {"dp": RANKS},
        "checkpoint": {"every_steps": CHECKPOINT_EVERY},
        "recovery": {"budgets": budgets},
        "snapshot": {"every_steps": 1},
        **fields,
    }
    if timeout_s is None:
        timeout_s = _START_S + _PER_STEP_S * plan.steps + _PER_FAULT_S * (len(plan.faults) + len(plan.external_faults))
    return run_plan(service, spec, plan, timeout_s=timeout_s, notify=notify)


def _disabled_timeout_s(plan: FaultPlan, control: Record) -> float:
    faults_s = _DISABLED_PER_FAULT_S * (len(plan.faults) + len(plan.external_faults))
    return (
        _DISABLED_START_S + faults_s + _DISABLED_CONTROL_FACTOR * sum(row["duration_s"] or 0.0 for row in control.rows)
    )
