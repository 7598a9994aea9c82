"""Runs one plan: submits the job, lets each blow fall when its step has come, and writes down what was seen."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from regroup.api.chaos import local_faults
from regroup.api.chaos.local_faults import Struck
from regroup.api.chaos.recorder import LoadableCheckpoints, recorded
from regroup.api.chaos.server_process import LocalService
from regroup.api.client.client import Client
from regroup.api.client.errors import ApiError
from regroup.api.schemas.jobs import Job
from regroup.service.chaos.fault_plan import NODE_LOSS_FAULTS, FaultPlan, PlannedFault
from regroup.service.chaos.observation import InjectedFault, Record
from regroup.service.domain.states import JobState

_LOOK_S, _LOOK_CLOSELY_S = 0.2, 0.02
_CANCELLED_WITHIN_S = 60.0
_LAST_EVENTS = 8
_RECOVERED_STEPS = 3
"""So many steps after a blow the job counts as recovered."""

_BACK_STEPS = 200
"""No blow costs more steps: so far back is looked for those that are done again."""

Tell = Callable[[str], None]


def conduct(service: LocalService, spec: Mapping[str, Any], plan: FaultPlan, *, within_s: float, tell: Tell) -> Record:
    """Run the job of `spec` under `plan`, and wait for its end.

    A job that is not over within `within_s` is cancelled.
    """
    with service.client() as client:
        job = client.submit({**spec, **plan.spec_fields, "faults": [dict(fault) for fault in plan.faults]})
        course = _Course(service, client, job.id, plan, tell)
        course.watch(time.monotonic() + within_s)
        return recorded(client, job.id, plan, fallen=course.fallen, fewest_loadable=course.loadable.fewest)


class _Course:
    """One job while it runs."""

    def __init__(self, service: LocalService, client: Client, job_id: str, plan: FaultPlan, tell: Tell) -> None:
        self.service, self.client, self.job_id, self.plan, self.tell = service, client, job_id, plan, tell
        self.fallen: list[InjectedFault] = []
        self.loadable = LoadableCheckpoints()
        self._due = deque(plan.external_faults)
        self._open: list[Struck] = []
        """Nodes that were lost and have yet to be thawed and replaced."""
        self._incidents = 0

    def watch(self, deadline_s: float) -> None:
        """Until the job is over."""
        job = self.client.get(self.job_id)
        while not JobState(job.state).is_terminal:
            if time.monotonic() > deadline_s:
                self.tell(f"step {job.step}: its time is over, it is {job.state}")
                self._say_where()
                self.client.cancel(self.job_id)
                job = self.client.wait(self.job_id, timeout_s=_CANCELLED_WITHIN_S)
                break
            closely = bool(self._due) and self._due[0].while_recovering
            if not closely:  # a recovery may be over before all else was looked at
                self.loadable.look(job)
                self._see(job)
            if self._due and self._has_come(self._due[0], job):
                self._fall(self._due.popleft(), job)
            time.sleep(_LOOK_CLOSELY_S if closely else _LOOK_S)
            job = self.client.get(self.job_id)
        self._see(job)
        self.loadable.look(job)
        self._settle()

    def _say_where(self) -> None:
        """What is known of a job that should be over: nobody can look later."""
        for event in list(self.client.events(self.job_id))[-_LAST_EVENTS:]:
            self.tell(f"  {event.type} of generation {event.generation}: {event.data}")
        with contextlib.suppress(ApiError):
            for stack in self.client.stacks(self.job_id):
                self.tell(f"  rank {stack.rank}: {stack.model_dump()}")

    def _has_come(self, blow: PlannedFault, job: Job) -> bool:
        if job.step < blow.after_step:
            return False
        if blow.while_recovering:
            return job.state == JobState.RECOVERING
        if blow.saved_step and all(saved.step < blow.saved_step for saved in self.client.checkpoints(self.job_id)):
            return False
        is_mirrored = job.mirrored_step is not None or job.spec.snapshot.mirror == "off"
        back = not self.fallen or self.fallen[-1].resumed_s is not None
        is_back = back and job.state == JobState.RUNNING and not self._open
        return is_back and (is_mirrored or blow.do not in (*NODE_LOSS_FAULTS, "kill_agent"))

    def _fall(self, blow: PlannedFault, job: Job) -> None:
        struck = self._strike(blow, job)
        self.tell(f"step {job.step}: {struck.what}")
        self.fallen.append(InjectedFault(blow.do, struck.what, struck.time_s, job.step, job.generation))
        if blow.do in NODE_LOSS_FAULTS:
            self._open.append(struck)
        if blow.do == "kill_server":
            self.service.restart()
        if blow.do == "kill_supervisor":
            self._see_again_soon()

    def _strike(self, blow: PlannedFault, job: Job) -> Struck:
        strikes = self.service.strikes
        match blow.do:
            case "kill_server":
                return strikes.kill_server()
            case "kill_supervisor":
                return strikes.kill_supervisor()
            case "kill_agent":
                return strikes.kill_agent(_node(job, blow.node))
            case "kill_node":
                return strikes.kill_node(_node(job, blow.node))
            case "freeze_node":
                return strikes.freeze_node(_node(job, blow.node))
            case "cancel":
                struck = Struck(time.time(), "cancelled")
                self.client.cancel(self.job_id)
                return struck
            case damage:
                newest = max(self.client.checkpoints(self.job_id), key=lambda saved: (saved.step, saved.generation)).uri
                harm = {"flip_checkpoint": local_faults.flip_byte, "truncate_checkpoint": local_faults.truncate}
                return harm.get(damage, local_faults.delete_shard)(newest)

    def _see_again_soon(self) -> None:
        """Look closely for the first step after a blow: its time is a figure."""
        deadline = time.monotonic() + 60
        while self.fallen[-1].resumed_s is None and time.monotonic() < deadline:
            self._see(self.client.get(self.job_id))
            time.sleep(_LOOK_CLOSELY_S)

    def _see(self, job: Job) -> None:
        """Note that training went on after the last blow, and put right what it broke."""
        for incident in job.incidents[self._incidents :]:
            self.tell(f"step {incident.at_step}: {incident.cause}")
        self._incidents = len(job.incidents)
        if not self.fallen or self.fallen[-1].resumed_s is not None:
            return
        last = self.fallen[-1]
        fresh = [
            row
            for row in self.client.steps(self.job_id, after=max(0, last.at_step - _BACK_STEPS))
            if row.time_s > last.time_s
        ]
        is_back = len(fresh) >= (1 if last.do not in NODE_LOSS_FAULTS else _RECOVERED_STEPS)
        if is_back and (last.do not in NODE_LOSS_FAULTS or fresh[-1].generation > last.generation):
            self.fallen[-1] = replace(last, resumed_s=time.time())
            self.tell(f"step {job.step}: trains on, {time.time() - last.time_s:.1f} s later")
            self._settle()

    def _settle(self) -> None:
        """Thaw what was frozen, and put another node in the place of each lost one."""
        for struck in self._open:
            if not self.service.strikes.thaw(struck):
                self.tell(f"node {self.service.add_node()} takes the place of the lost one")
        self._open.clear()


def _node(job: Job, number: int) -> str:
    """Name of a job's node, in the order of its ranks."""
    names = list(dict.fromkeys(place.node_name for place in job.placement))
    return names[number % len(names)]
