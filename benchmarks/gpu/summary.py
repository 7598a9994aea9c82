"""The figures of all stages in one document, `benchmarks/results/gpu.json`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.stages import STAGES
from benchmarks.gpu.values import by_name

_LARGEST = ("1B", "100M", "toy")
_STATES = ("12288MiB", "4096MiB", "1024MiB", "16MiB")
_KEPT = ("state", "reason", "seconds", "device")
_MODES = ("compile_default", "compile_off")


def figures(results: Path) -> dict[str, Any]:
    """Return the figures of the stages that have passed, and the state of every stage that has run."""
    stored = {
        stage.name: json.loads(path.read_text())
        for stage in STAGES
        if (path := results / f"{stage.name}.json").exists()
    }
    values = {name: by_name(document["rows"]) for name, document in stored.items() if document["state"] == "passed"}
    found = {
        "fork_to_context_s": values.get("smoke", {}).get("fork_to_context_s"),
        "kill_to_first_step_p50_s": _first(values.get("recovery", {}), "kill_to_first_step_s", _LARGEST),
        "snapshot_d2h_ratio": _first(values.get("state", {}), "snapshot_d2h_ratio", _STATES),
        "mfu_over_matmul_ceiling": _first(values.get("speed", {}), "mfu_over_matmul_ceiling", _MODES),
        "ratio_plain_loop": _first(values.get("speed", {}), "ratio_plain_loop", _MODES),
    }
    states = {name: {key: document[key] for key in _KEPT} for name, document in stored.items()}
    return {**{name: value for name, value in found.items() if value is not None}, "stages": states}


def _first(values: Mapping[str, Any], name: str, suffixes: Iterable[str]) -> Any:
    """Return the value of the first suffix that was measured; None if none was."""
    return next((values[f"{name}.{suffix}"] for suffix in suffixes if f"{name}.{suffix}" in values), None)
