"""One-page summary of an incident's evidence for people. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.policy.detection.desync import describe_newest, find_desync, find_missing_ranks

_GIB = 2**30


def summary_text(
    number: int, incident: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], missing: Mapping[str, str]
) -> str:
    """Summarize the cause, the duration of each recovery phase, the activity of each rank, and the missing evidence.

    Args:
        nodes: evidence of each node.
        missing: name of a node → reason why its evidence is missing.
    """
    lines = [f"incident {number}: {incident['cause']}", _place(incident), *_durations(incident), ""]
    ranks = {int(rank): (node, entry) for node in nodes for rank, entry in node["ranks"].items()}
    lines += [_rank(rank, *ranks[rank]) for rank in sorted(ranks)]
    entered = {rank: entry["collectives"] for rank, (_, entry) in ranks.items() if _has_collectives(entry)}
    for found in (find_desync(entered), find_missing_ranks(entered)):
        lines += [] if found is None else [found.summary]
    if ranks and not any(entry["was_inspected"] for _, entry in ranks.values()):
        lines.append("no stacks and collectives: the recovery did not wait to inspect the ranks")
    lines += ["", *(_node(node) for node in nodes), *(f"missing: node {name}: {why}" for name, why in missing.items())]
    return "\n".join(lines) + "\n"


def _place(incident: Mapping[str, Any]) -> str:
    after = incident.get("next_generation")
    recovery = f", continued as generation {after} ({incident.get('recovery_action')})" if after else ""
    reason, ended, step = (incident.get(name) for name in ("reason", "generation", "at_step"))
    return f"reason {reason}, generation {ended}, after step {step}{recovery}"


def _durations(incident: Mapping[str, Any]) -> list[str]:
    durations = incident.get("durations") or {}
    return [", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in durations.items())] if durations else []


def _has_collectives(entry: Mapping[str, Any]) -> bool:
    """Return True if the agent inspected the rank, or a collective of the rank raised and reported itself."""
    return bool(entry["was_inspected"] or entry["collectives"])


def _rank(rank: int, node: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    parts = [f"rank {rank} on {node['node']}: {entry['phase']} of step {entry['step']} for {entry['stalled_s']:.1f} s"]
    if (code := entry.get("exit_code")) is not None:
        parts.append(f"killed by signal {-code}" if code < 0 else f"exited with code {code}")
    if error := entry.get("error"):
        parts.append(f"{error['kind']}: {str(error['message']).partition(chr(10))[0]}")
    if _has_collectives(entry):
        parts.append(f"last collective: {describe_newest(entry['collectives'])}")
    if memory := (entry.get("uses") or {}).get("memory_bytes"):
        parts.append(f"{memory / _GIB:.2f} GiB, {entry['uses']['descriptors']} descriptors")
    return "; ".join(parts)


def _node(node: Mapping[str, Any]) -> str:
    host = node["host"]
    free, total, limit = (host.get(name) for name in ("free_memory_bytes", "memory_bytes", "container_limit_bytes"))
    text = f"node {node['node']}: load {host['load'][0]:.1f} on {host['cpus']} cores"
    if free and total:
        text += f", {free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
    if limit:
        text += f", container {(host.get('container_memory_bytes') or 0) / _GIB:.1f} of {limit / _GIB:.1f} GiB"
    return text
