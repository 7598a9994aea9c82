"""The environment of a job's zygote, and so of its ranks: what they need, and nothing that they must not hold."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.tracker_env import tracker_variables
from regroup.workers.os import node_facts, orphans

_COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_HIDDEN = ("RAY_", "AWS_", "GOOGLE_", "AZURE_", "REGROUP_DATABASE", "CUDA_VISIBLE_DEVICES", "PG")
"""Variables of the agent that begin so are the platform's own: cluster, storage and database credentials, devices."""


def zygote_environment(config: AgentConfig) -> dict[str, str]:
    """Variables of one job on one node.

    Raises:
        SecretMissing: a secret's source is not on this node, or is not for ranks.
    """
    ifname = config.ifname or node_facts.interface_of(config.address)
    threads = str(config.cpus)
    return scrubbed_environment(
        {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # Importing numpy and pyarrow (pandas, datasets) must not start a thread before the fork.
            "OPENBLAS_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "GLOO_SOCKET_IFNAME": ifname,
            "NCCL_SOCKET_IFNAME": ifname,
            "REGROUP_COLLECTIVE_TIMEOUT_S": str(config.collective_timeout_s),
            "PYTHONUNBUFFERED": "1",
            **_compiled(),
            **{key: value for key, value in os.environ.items() if key.startswith("NCCL_")},
            **config.env,
            **{name: _secret(name, source) for name, source in config.secrets.items()},
        }
    )


def rank_variables(config: AgentConfig, rank: int, device_index: int, scratch: Path) -> dict[str, str]:
    """What one rank has beside what its zygote has."""
    given = {*os.environ, *config.env, *config.secrets}
    return {
        "REGROUP_DEVICE_INDEX": str(device_index),
        orphans.VARIABLE: str(scratch),
        **tracker_variables(config, rank, given),
    }


def data_function_environment(config: AgentConfig) -> dict[str, str]:
    """Variables of the process in which a job's data function runs: those of its ranks, but for their collectives.

    Raises:
        SecretMissing: a secret's source is not on this node, or is not for ranks.
    """
    return scrubbed_environment(
        {
            "OMP_NUM_THREADS": "1",  # as many of them run as the reservation has processors
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **config.env,
            **{name: _secret(name, source) for name, source in config.secrets.items()},
        }
    )


def is_same_environment(one: AgentConfig, other: AgentConfig) -> bool:
    """Whether a zygote that was started for one config can serve the other: interpreter and variables are equal."""
    return _started_with(one) == _started_with(other)


def scrubbed_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what a rank must not hold: cluster, storage and database credentials."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith(_HIDDEN)}, **extra}


def _compiled() -> dict[str, str]:
    """Where torch.compile keeps what it made: a folder of this node that outlives ranks and jobs, closed to others."""
    if _COMPILED in os.environ:
        return {}
    folder = Path(tempfile.gettempdir()) / f"regroup-compiled-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        is_ours = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    except OSError:
        is_ours = False
    return {_COMPILED: str(folder)} if is_ours else {}


def _secret(name: str, source: Mapping[str, Any]) -> str:
    variable = source.get("from_env")
    if variable and variable.startswith(_HIDDEN):
        raise node_facts.SecretMissing(
            f"secret {name}: variable {variable} of the node is the platform's own and not for ranks; "
            "offer the value under another name"
        )
    return node_facts.secret(name, source)


def _started_with(config: AgentConfig) -> tuple[object, ...]:
    return (
        config.interpreter, config.requirements, config.base, config.address, config.ifname, config.cpus, config.env,
        config.secrets, config.collective_timeout_s,
    )  # fmt: skip
