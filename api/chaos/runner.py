"""Execution of one fault plan: submit the job, inject each external fault at its step, and record the result."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from regroup.api.chaos import local_faults
from regroup.api.chaos.local_faults import Injection
from regroup.api.chaos.recorder import CheckpointCounter, record_job
from regroup.api.chaos.server_process import LocalService
from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.fault_plan import NODE_LOSS_FAULTS, FaultPlan, PlannedFault
from regroup.service.chaos.observation import InjectedFault, Record
from regroup.service.domain.states import JobState

_POLL_S, _FAST_POLL_S = 0.2, 0.02
_CANCEL_TIMEOUT_S = 60.0
_LAST_EVENTS = 8
_RECOVERED_STEPS = 3
"""Number of steps after a node loss until the job counts as recovered."""

_MAX_LOST_STEPS = 200
"""Upper bound of the steps that a fault costs. Repeated steps are searched only in this range."""

Notify = Callable[[str], None]


def run_plan(
    service: LocalService, spec: Mapping[str, Any], plan: FaultPlan, *, timeout_s: float, notify: Notify
) -> Record:
    """Run the job of `spec` under `plan`, and wait for its end.

    A job that does not end within `timeout_s` is cancelled.
    """
    with service.client() as client:
        job = client.submit({**spec, **plan.spec_fields, "faults": [dict(fault) for fault in plan.faults]})
        run = _Run(service, client, job.id, plan, notify)
        run.watch(time.monotonic() + timeout_s)
        return record_job(client, job.id, plan, injected=run.injected, fewest_loadable=run.checkpoint_counter.fewest)


class _Run:
    """One job while it runs."""

    def __init__(self, service: LocalService, client: Client, job_id: str, plan: FaultPlan, notify: Notify) -> None:
        self.service, self.client, self.job_id, self.plan, self.notify = service, client, job_id, plan, notify
        self.injected: list[InjectedFault] = []
        self.checkpoint_counter = CheckpointCounter()
        self._pending = deque(plan.external_faults)
        self._broken_nodes: list[Injection] = []
        """Lost nodes that were not thawed or replaced yet."""
        self._incidents = 0

    def watch(self, deadline_s: float) -> None:
        """Inject faults and observe the job until it ends."""
        job = self.client.get(self.job_id)
        while not JobState(job.state).is_terminal:
            if time.monotonic() > deadline_s:
                self.notify(f"step {job.step}: time limit exceeded in state {job.state}")
                self._report_state()
                self.client.cancel(self.job_id)
                job = self.client.wait(self.job_id, timeout_s=_CANCEL_TIMEOUT_S)
                break
            is_fast = bool(self._pending) and self._pending[0].while_recovering
            if not is_fast:  # the checks below take longer than a short recovery
                self.checkpoint_counter.update(job)
                self._observe(job)
            if self._pending and self._is_due(self._pending[0], job):
                self._inject(self._pending.popleft(), job)
            time.sleep(_FAST_POLL_S if is_fast else _POLL_S)
            job = self.client.get(self.job_id)
        self._observe(job)
        self.checkpoint_counter.update(job)
        self._repair_nodes()

    def _report_state(self) -> None:
        """Report the state of a job that exceeded its time limit, since its processes end when it is cancelled."""
        for event in list(self.client.events(self.job_id))[-_LAST_EVENTS:]:
            self.notify(f"  {event.type} of generation {event.generation}: {event.data}")
        with contextlib.suppress(ApiError):
            for stack in self.client.stacks(self.job_id):
                self.notify(f"  rank {stack.rank}: {stack.model_dump()}")

    def _is_due(self, fault: PlannedFault, job: Job) -> bool:
        if job.step < fault.after_step:
            return False
        if fault.while_recovering:
            return job.state == JobState.RECOVERING
        if fault.saved_step and all(saved.step < fault.saved_step for saved in self.client.checkpoints(self.job_id)):
            return False
        is_mirrored = job.mirrored_step is not None or (job.spec is not None and job.spec.snapshot.mirror == "off")
        is_observed = not self.injected or self.injected[-1].resumed_s is not None
        is_back = is_observed and job.state == JobState.RUNNING and not self._broken_nodes
        return is_back and (is_mirrored or fault.do not in (*NODE_LOSS_FAULTS, "kill_agent"))

    def _inject(self, fault: PlannedFault, job: Job) -> None:
        injection = self._apply(fault, job)
        self.notify(f"step {job.step}: {injection.what}")
        self.injected.append(InjectedFault(fault.do, injection.what, injection.time_s, job.step, job.generation))
        if fault.do in NODE_LOSS_FAULTS:
            self._broken_nodes.append(injection)
        if fault.do == "kill_server":
            self.service.restart()
        if fault.do == "kill_supervisor":
            self._wait_for_step()

    def _apply(self, fault: PlannedFault, job: Job) -> Injection:
        faults = self.service.faults
        match fault.do:
            case "kill_server":
                return faults.kill_server()
            case "kill_supervisor":
                return faults.kill_supervisor()
            case "kill_agent":
                return faults.kill_agent(_node_name(job, fault.node))
            case "kill_node":
                return faults.kill_node(_node_name(job, fault.node))
            case "freeze_node":
                return faults.freeze_node(_node_name(job, fault.node))
            case "cancel":
                injection = Injection(time.time(), "cancelled")
                self.client.cancel(self.job_id)
                return injection
            case damage:
                newest = max(self.client.checkpoints(self.job_id), key=lambda saved: (saved.step, saved.generation)).uri
                harm = {"flip_checkpoint": local_faults.flip_byte, "truncate_checkpoint": local_faults.truncate}
                return harm.get(damage, local_faults.delete_shard)(newest)

    def _wait_for_step(self) -> None:
        """Poll frequently for the first step after a fault, because its time is reported."""
        deadline = time.monotonic() + 60
        while self.injected[-1].resumed_s is None and time.monotonic() < deadline:
            self._observe(self.client.get(self.job_id))
            time.sleep(_FAST_POLL_S)

    def _observe(self, job: Job) -> None:
        """Record that training resumed after the last fault, and repair lost nodes."""
        for incident in job.incidents[self._incidents :]:
            self.notify(f"step {incident.at_step}: {incident.cause}")
        self._incidents = len(job.incidents)
        if not self.injected or self.injected[-1].resumed_s is not None:
            return
        last = self.injected[-1]
        new_rows = [
            row
            for row in self.client.steps(self.job_id, after=max(0, last.at_step - _MAX_LOST_STEPS))
            if row.time_s > last.time_s
        ]
        is_back = len(new_rows) >= (1 if last.do not in NODE_LOSS_FAULTS else _RECOVERED_STEPS)
        if is_back and (last.do not in NODE_LOSS_FAULTS or new_rows[-1].generation > last.generation):
            self.injected[-1] = replace(last, resumed_s=time.time())
            self.notify(f"step {job.step}: training resumed after {time.time() - last.time_s:.1f} s")
            self._repair_nodes()

    def _repair_nodes(self) -> None:
        """Thaw frozen nodes, and add a node for each lost one."""
        for injection in self._broken_nodes:
            if not self.service.faults.thaw(injection):
                self.notify(f"node {self.service.add_node()} replaces the lost node")
        self._broken_nodes.clear()


def _node_name(job: Job, number: int) -> str:
    """Return the name of a job's node, numbered in the order of its ranks."""
    names = list(dict.fromkeys(place.node_name for place in job.placement))
    return names[number % len(names)]
