"""An incident's evidence on one page, for people. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from regroup.service.policy.detection.desync import describe_newest, find_desync, find_missing_ranks

_GIB = 2**30


def summary_text(
    number: int, incident: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], missing: Mapping[str, str]
) -> str:
    """What happened, how long each phase of the recovery took, where every rank was, and what is missing.

    Args:
        nodes: what each node left.
        missing: name of a node → why there is nothing of it.
    """
    lines = [f"incident {number}: {incident['cause']}", _place(incident), *_durations(incident), ""]
    ranks = {int(rank): (node, at) for node in nodes for rank, at in node["ranks"].items()}
    lines += [_rank(rank, *ranks[rank]) for rank in sorted(ranks)]
    entered = {rank: at["collectives"] for rank, (_, at) in ranks.items() if _is_known(at)}
    for found in (find_desync(entered), find_missing_ranks(entered)):
        lines += [] if found is None else [found.summary]
    if ranks and not any(at["was_asked"] for _, at in ranks.values()):
        lines.append("ranks were not asked for their stacks and collectives: the recovery did not wait for that")
    lines += ["", *(_node(node) for node in nodes), *(f"missing: node {name}: {why}" for name, why in missing.items())]
    return "\n".join(lines) + "\n"


def _place(incident: Mapping[str, Any]) -> str:
    after = incident.get("next_generation")
    went_on = f", generation {after} went on ({incident.get('recovery_action')})" if after else ""
    reason, ended, step = (incident.get(name) for name in ("reason", "generation", "at_step"))
    return f"reason {reason}, generation {ended}, after step {step}{went_on}"


def _durations(incident: Mapping[str, Any]) -> list[str]:
    durations = incident.get("durations") or {}
    return [", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in durations.items())] if durations else []


def _is_known(at: Mapping[str, Any]) -> bool:
    """It was asked for its collectives, or told them when one of them raised."""
    return bool(at["was_asked"] or at["collectives"])


def _rank(rank: int, node: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    parts = [f"rank {rank} on {node['node']}: {at['phase']} of step {at['step']} for {at['quiet_s']:.1f} s"]
    if (code := at.get("exit_code")) is not None:
        parts.append(f"killed by signal {-code}" if code < 0 else f"exited with code {code}")
    if error := at.get("error"):
        parts.append(f"{error['kind']}: {str(error['message']).partition(chr(10))[0]}")
    if _is_known(at):
        parts.append(f"last collective: {describe_newest(at['collectives'])}")
    if memory := (at.get("uses") or {}).get("memory_bytes"):
        parts.append(f"{memory / _GIB:.2f} GiB, {at['uses']['descriptors']} descriptors")
    return "; ".join(parts)


def _node(node: Mapping[str, Any]) -> str:
    host = node["host"]
    free, whole, limit = (host.get(name) for name in ("free_memory_bytes", "memory_bytes", "container_limit_bytes"))
    text = f"node {node['node']}: load {host['load'][0]:.1f} on {host['cpus']} cores"
    if free and whole:
        text += f", {free / _GIB:.1f} of {whole / _GIB:.1f} GiB free"
    if limit:
        text += f", container {(host.get('container_memory_bytes') or 0) / _GIB:.1f} of {limit / _GIB:.1f} GiB"
    return text
