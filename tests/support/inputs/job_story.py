"""The events of a job, for everything that draws one."""

import math
from typing import Any, ClassVar

import pytest

from regroup.api.live.job_view import JobView, apply_event, apply_steps, initial_view


class Story:
    """300 steps on two nodes of two ranks. Rank 1 is killed after step 149 and training resumes 0.8 s later."""

    killed_at: ClassVar = {"fault_s": 115.0, "seen_s": 115.02, "dead_s": 115.04}
    back_at: ClassVar = {**killed_at, "formed_s": 115.3, "restored_s": 115.4, "first_step_s": 115.8}

    @staticmethod
    def step(step: int, generation: int = 1) -> dict[str, Any]:
        loss = 2 + 3.5 * math.exp(-step / 40)
        held_out = loss + 0.1 if step % 50 == 0 else None
        row = {"step": step, "generation": generation, "time_s": 100 + 0.1 * step, "loss": loss, "tokens": 2048}
        return {"type": "step", "data": {**row, "validation_loss": held_out}}

    @staticmethod
    def generation(number: int) -> dict[str, Any]:
        ranks = [{"rank": i, "node_name": f"node-{i // 2 + 1}", "node_id": str(i // 2)} for i in range(4)]
        return {
            "type": "generation",
            "data": {
                "number": number,
                "layout": {"dp_shard": 4, "tp": 1},
                "ranks": ranks,
                "start_step": 0 if number == 1 else 149,
            },
        }

    @staticmethod
    def incident(times: dict[str, float], **more: Any) -> dict[str, Any]:
        data = {"id": "i1", "cause": "SIGKILL", "rank": 1, "at_step": 149, "generation": 1, "times": times}
        return {"type": "incident", "data": {**data, **more}}

    @staticmethod
    def state(state: str, reason: str = "", **more: Any) -> dict[str, Any]:
        return {"type": "state", "data": {"from": None, "to": state, "reason": reason, **more}}

    @property
    def until_the_kill(self) -> list[dict[str, Any]]:
        return [
            self.state("STARTING", "reserved"),
            {"type": "phase", "data": {"phase": "data", "fraction": 0.4, "message": "12 files"}},
            self.generation(1),
            self.state("RUNNING", "first_step"),
            *[self.step(step) for step in range(1, 150)],
            self.incident(self.killed_at),
        ]

    @property
    def the_return(self) -> list[dict[str, Any]]:
        return [self.generation(2), self.incident(self.back_at, steps_lost=0), self.step(150, generation=2)]

    def view(self, events: list[dict[str, Any]]) -> JobView:
        view = initial_view("pretrain-cpython", 300, ["node-1", "node-2"], 2, "starting Ray")
        for event in events:
            view = self.after(view, event)
        return view

    @staticmethod
    def after(view: JobView, event: dict[str, Any]) -> JobView:
        return apply_steps(view, [event["data"]]) if event["type"] == "step" else apply_event(view, event)


@pytest.fixture
def story() -> Story:
    return Story()
