"""Verdicts of chaos rehearsals."""

from typing import Any


def verdict(scenario: str = "rank-killed", **fields: Any) -> dict[str, Any]:
    """Return a verdict as a client sends it."""
    return {
        "scenario": scenario, "number": "1", "what": "SIGKILL of a rank", "seed": 7, "passed": True,
        "invariants": {"I1": True, "I2": True}, "problems": [], "disabled_detectors": [], "incidents": ["rank_exit"],
        "recovery_actions": ["respawn"], "detect_s": 0.2, "recover_s": 3.1, "steps_lost": 1, "version": "0.1.0",
        **fields,
    }  # fmt: skip
