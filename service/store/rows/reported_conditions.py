"""Conditions of a job that agents and supervisors report in notes."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from regroup.service.store.rows.records import NODE_WELL, TERMINATING, Condition, JobRow


class Reported(Protocol):
    """An event that the supervisor reports (`service.ports.sync.SupervisorEvent`)."""

    @property
    def seq(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def time_s(self) -> float: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


def condition_of_node(job: JobRow, event: Reported, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that sets or removes the condition of a node that is short of a resource or has a fault."""
    what, place, message = data["what"], f"node {data['node']}: ", data["message"]
    others = [
        condition
        for condition in job.conditions
        if not (condition.type == NODE_WELL and condition.reason == what and condition.message.startswith(place))
    ]
    unwell = [Condition(NODE_WELL, False, what, f"{place}{message}", event.time_s)] if message else []
    return {"conditions": [asdict(each) for each in (*others, *unwell)]}


def condition_of_termination(job: JobRow, event: Reported, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that sets the condition of ranks that got SIGTERM, or removes it when they have ended."""
    others = [condition for condition in job.conditions if condition.type != TERMINATING]
    mine = [] if data["is_over"] else [Condition(TERMINATING, True, "sigterm", data["message"], event.time_s)]
    return {"conditions": [asdict(each) for each in (*others, *mine)]}
