"""Facts about the GPU and its driver, without a CUDA context in this process."""

import shutil
import subprocess
from typing import Any

_FIELDS = (
    "name", "uuid", "driver_version", "memory.total", "memory.used", "compute_cap", "clocks.max.sm", "power.limit",
    "ecc.mode.current", "mig.mode.current",
)  # fmt: skip
_TIMEOUT_S = 60.0


def gpu_facts() -> list[dict[str, Any]]:
    """Return the facts of each GPU that `nvidia-smi` lists; empty without one."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [{"error": str(error)}]
    if done.returncode != 0:
        return [{"error": (done.stdout + done.stderr).strip()[:500]}]
    return [dict(zip(_FIELDS, line.split(", "), strict=False)) for line in done.stdout.splitlines() if line]


def memory_used_mib() -> float | None:
    """Return the used memory of the first GPU in MiB, as the driver counts it; None without a GPU."""
    facts = gpu_facts()
    try:
        return float(facts[0]["memory.used"]) if facts else None
    except (KeyError, ValueError):
        return None
