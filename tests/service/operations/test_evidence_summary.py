"""The one-page summary of an incident's evidence."""

from typing import Any

from regroup.service.operations.evidence_summary import summary_text

HOST = {"load": [1.5, 1.0, 0.5], "cpus": 2, "memory_bytes": 8 * 2**30, "free_memory_bytes": 2**30}
INCIDENT = {
    "cause": "rank 1 killed by signal 9",
    "reason": "rank_exit",
    "generation": 1,
    "next_generation": 2,
    "at_step": 12,
    "recovery_action": "respawn",
    "durations": {"detect": 0.012, "total": 0.6},
}


def rank(**fields: Any) -> dict[str, Any]:
    return {"step": 13, "phase": "backward", "stalled_s": 0.04, "exit_code": None, "error": None, "uses": {},
            "was_inspected": False, "collectives": None, **fields}  # fmt: skip


def collective(count: int) -> list[dict[str, Any]]:
    entry = {"group": "0", "first_rank": 0, "title": "default_pg", "sequence": 3, "name": "all_reduce"}
    return [{**entry, "shapes": [[count]], "types": ["Float"], "is_over": False}]


def test_a_summary_of_an_exit_lists_each_rank() -> None:
    killed = rank(exit_code=-9, collectives=None)
    reset = {"kind": "RuntimeError", "message": "Connection closed by peer\nmore"}
    left = rank(exit_code=1, error=reset, uses={"memory_bytes": 2**29, "descriptors": 40})
    nodes = [{"node": "alpha", "host": HOST, "ranks": {"1": killed, "0": left}}]
    lines = summary_text(3, INCIDENT, nodes, {"beta": "the node was lost"}).splitlines()
    assert lines[0] == "incident 3: rank 1 killed by signal 9"
    assert lines[1] == "reason rank_exit, generation 1, after step 12, continued as generation 2 (respawn)"
    assert lines[2] == "detect 0.012 s, total 0.600 s"
    details = "RuntimeError: Connection closed by peer; 0.50 GiB, 40 descriptors"
    assert lines[4] == f"rank 0 on alpha: backward of step 13 for 0.0 s; exited with code 1; {details}"
    assert lines[5] == "rank 1 on alpha: backward of step 13 for 0.0 s; killed by signal 9"
    assert lines[6].startswith("no stacks and collectives")
    assert lines[-2:] == [
        "node alpha: load 1.5 on 2 cores, 1.0 of 8.0 GiB free",
        "missing: node beta: the node was lost",
    ]


def test_a_summary_of_a_hang_lists_the_collective_of_each_rank() -> None:
    here = [rank(was_inspected=True, collectives=collective(count)) for count in (8, 8, 9)]
    nodes = [{"node": "alpha", "host": HOST, "ranks": {str(number): at for number, at in enumerate(here)}}]
    text = summary_text(1, {**INCIDENT, "reason": "hang"}, nodes, {})
    assert "last collective: all_reduce of 9 Float, number 3 of group default_pg (waiting)" in text
    assert "rank 2 into all_reduce of 9 Float, the others into all_reduce of 8 Float" in text
    assert "no stacks" not in text


def test_a_summary_without_evidence_states_the_cause() -> None:
    text = summary_text(1, {"cause": "x", "reason": "hang"}, [], {"a": "not written yet"})
    assert text.startswith("incident 1: x\n") and text.endswith("missing: node a: not written yet\n")
