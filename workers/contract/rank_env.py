"""Environment variables and working folder of the programs of a rank. No torch.

The rank itself uses them, and so do commands that users run next to it.
"""

import os
from pathlib import PurePosixPath

from regroup.workers.contract.messages import Join

BUILTIN_ENTRY = "regroup.workers.train.trainer:train"
"""The training function of the platform."""
SCRIPT_FILE, SCRIPT_MODULE = "script:", "script-module:"


def is_script(entry: str) -> bool:
    """Return whether an entry names a program, not a training function."""
    return entry.startswith((SCRIPT_FILE, SCRIPT_MODULE))


def variables(join: Join) -> dict[str, str]:
    """Return torchrun's variables, so that unmodified `env://` scripts and libraries find their place."""
    return {
        "MASTER_ADDR": join.store_host,
        "MASTER_PORT": str(join.store_port),
        "RANK": str(join.rank),
        "WORLD_SIZE": str(join.world_size),
        "LOCAL_RANK": str(join.local_rank),
        "LOCAL_WORLD_SIZE": str(join.local_world_size),
        "GROUP_RANK": str(join.node_rank),
        "GROUP_WORLD_SIZE": str(join.node_count),
        "ROLE_RANK": str(join.rank),
        "ROLE_WORLD_SIZE": str(join.world_size),
        "ROLE_NAME": join.config.script.role if join.config.script else "default",
        "TORCHELASTIC_RUN_ID": join.job_id,
        "TORCHELASTIC_RESTART_COUNT": str(join.generation - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(join.config.script.max_restarts if join.config.script else 0),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "REGROUP_JOB_ID": join.job_id,
        "REGROUP_GENERATION": str(join.generation),
    }


def visible_devices(join: Join) -> dict[str, str]:
    """Return the variable that shows a program all devices of the job on its node; `LOCAL_RANK` selects one of them."""
    devices = join.node_devices if join.device == "cuda" else ()
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in devices)}


def folder(join: Join) -> str:
    """Return the working folder of a program; empty for the folder of the job's own code."""
    if not is_script(join.entry):
        return ""
    path = join.entry.removeprefix(SCRIPT_FILE) if join.entry.startswith(SCRIPT_FILE) else ""
    cwd = (join.config.script and join.config.script.cwd) or os.path.dirname(path)  # noqa: PTH120
    return cwd if PurePosixPath(cwd).is_absolute() else ""
