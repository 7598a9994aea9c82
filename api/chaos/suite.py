"""Runs scenarios and soaks on a service of their own, each beside its control run."""

import shutil
import sysconfig
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regroup.api.chaos.runner import Tell, conduct
from regroup.api.chaos.server_process import LocalService
from regroup.service.chaos import fault_plan as plans
from regroup.service.chaos.fault_plan import FaultPlan
from regroup.service.chaos.observation import Record
from regroup.service.chaos.report import Outcome, judge_scenario, judge_soak
from regroup.service.chaos.scenarios import CHECKPOINT_EVERY, NODES, RANKS, Scenario
from regroup.service.domain.detectors import Detector
from regroup.service.domain.errors import UnavailableError

_SLOTS = RANKS // NODES
_START_S, _A_STEP_S, _A_BLOW_S = 180.0, 0.5, 30.0
_BLIND_S, _BLIND_A_BLOW_S, _BLIND_TIMES = 20.0, 10.0, 3.0
"""Patience with what a detector that is off may never notice: beside this, so many times the control run."""
_CALIBRATION_STEPS = 60
_SOAK_PAUSE_S = 20.0
"""A fault about so often."""
_MODULES = ("argparse", "ast", "calendar", "dataclasses", "datetime", "difflib", "enum", "heapq")


@dataclass(frozen=True)
class Case:
    """A scenario to be run."""

    scenario: Scenario
    seed: int
    disable_detectors: tuple[Detector, ...] = ()
    """Detectors that are off; nobody waits long for what is not noticed then."""


def run_cases(cases: Sequence[Case], tell: Tell) -> Iterator[tuple[Case, Outcome]]:
    """Each outcome as soon as it is there. Scenarios that need a spare node come last, on a service that has one.

    The seed strikes; an undisturbed run is the same for all seeds.
    """
    for spares in sorted({case.scenario.spares for case in cases}):
        with _service(spares) as (service, root):
            controls: dict[tuple[int, str], Record] = {}
            for case in [each for each in cases if each.scenario.spares == spares]:
                scenario = case.scenario
                layout = {name: part for name, part in scenario.spec_fields.items() if name == "layout"}
                like = (scenario.steps, str(layout))
                if like not in controls:
                    tell(f"control run of {scenario.steps} steps")
                    controls[like] = _run(
                        service, root, FaultPlan("control", case.seed, scenario.steps), tell, **layout
                    )
                blind = f", blind to {', '.join(case.disable_detectors)}" if case.disable_detectors else ""
                tell(f"{scenario.number} {scenario.name}{blind}: {scenario.what}")
                plan, control = scenario.plan(case.seed), controls[like]
                within_s = _blind_patience_s(plan, control) if blind else None
                record = _run(service, root, plan, tell, within_s, disable_detectors=list(case.disable_detectors))
                yield case, judge_scenario(scenario, case.seed, record, control)


def run_soak(minutes: float, seed: int, mix: Mapping[str, float], tell: Tell) -> Outcome:
    """A job of about so many minutes with a fault of the mix every 20 s, and its control run before it."""
    with _service(spares=1) as (service, root):
        tell("measuring how long a step takes")
        measured = _run(service, root, FaultPlan("calibration", seed, _CALIBRATION_STEPS), tell)
        durations = sorted(row["duration_s"] for row in measured.rows if row["duration_s"] is not None)
        step_s = durations[len(durations) // 2]
        steps, every = max(60, int(60 * minutes / step_s)), max(12, round(_SOAK_PAUSE_S / step_s))
        plan = plans.plan_soak(seed, steps=steps, every=every, ranks=RANKS, nodes=NODES, mix=mix)
        tell(f"control run of {steps} steps of {step_s:.3f} s")
        control = _run(service, root, FaultPlan("control", seed, steps), tell)
        tell(f"soak: {len(plan.faults)} faults, {len(plan.external_faults)} strikes from outside")
        return judge_soak(_run(service, root, plan, tell, snapshot={"every_steps": 1, "mirror_share": 0.5}), control)


@contextmanager
def _service(spares: int) -> Generator[tuple[LocalService, Path]]:
    """A service in a temporary folder, which is kept if what runs in it fails."""
    root = Path(tempfile.mkdtemp(prefix="regroup-chaos-"))
    service = LocalService(root, nodes=NODES + spares, slots=_SLOTS)
    try:
        with service:
            for name in _MODULES:
                (root / "text").mkdir(exist_ok=True)
                shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{name}.py", root / "text")
            yield service, root
        if service.late:
            late = "; ".join(f"{pid} {command[:100]}" for pid, command in service.late.items())
            raise UnavailableError(f"the service did not end by itself, and was killed: {late}")
    except BaseException as error:
        error.add_note(f"the server's log and state are in {root}")
        raise
    shutil.rmtree(root, ignore_errors=True)


def _run(
    service: LocalService, root: Path, plan: FaultPlan, tell: Tell, within_s: float | None = None, **parts: Any
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
        **parts,
    }
    if within_s is None:
        within_s = _START_S + _A_STEP_S * plan.steps + _A_BLOW_S * (len(plan.faults) + len(plan.external_faults))
    return conduct(service, spec, plan, within_s=within_s, tell=tell)


def _blind_patience_s(plan: FaultPlan, control: Record) -> float:
    blows_s = _BLIND_A_BLOW_S * (len(plan.faults) + len(plan.external_faults))
    return _BLIND_S + blows_s + _BLIND_TIMES * sum(row["duration_s"] or 0.0 for row in control.rows)
