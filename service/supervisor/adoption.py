"""What a supervisor that was not there finds of its job's newest generation."""

import time
from collections.abc import Mapping

from regroup.service.supervisor.generation_monitor import GenerationMonitor
from regroup.service.supervisor.generations import Generation
from regroup.workers.contract.agent_records import AgentStatus
from regroup.workers.contract.messages import from_json


def found(last: Generation, statuses: Mapping[str, AgentStatus]) -> tuple[GenerationMonitor, bool]:
    """All that its agents heard of it, and whether it is alive and whole, or broken with evidence. What is neither was
    never formed.

    Args:
        statuses: node → what its agent says of itself.
    """
    watch = GenerationMonitor(last, step=last.start_step)
    is_whole = True
    for node, status in statuses.items():
        for message in map(from_json, status.messages):
            if getattr(message, "generation", None) == last.number:
                watch.receive(node, message)
        silent = {place.rank for place in last.on(node)} - set(status.running) - set(watch.done)
        is_whole = is_whole and status.generation == last.number and not silent
    for node, status in statuses.items():
        if watch.joined and status.generation != last.number:  # all ranks had met, so another agent was there
            watch.record_loss(node, time.time())
    return watch, is_whole or watch.is_broken
