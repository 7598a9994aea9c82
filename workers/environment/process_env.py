"""Environment variables of a job's zygote and of its ranks, without the credentials of the platform."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.tracker_env import tracker_variables
from regroup.workers.os import node_facts, orphans

_COMPILE_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_HIDDEN = (
    "RAY_", "AWS_", "GOOGLE_", "AZURE_", "REGROUP_DATABASE", "REGROUP_TOKEN", "REGROUP_SECRETS_KEY",
    "CUDA_VISIBLE_DEVICES", "PG",
)  # fmt: skip
"""Prefixes of the platform's own variables: credentials of cluster, storage, database and API, and devices."""
_FILES_OF_SERVER = ("api.token", "regroup.db", "secrets.key")


def zygote_environment(config: AgentConfig) -> dict[str, str]:
    """Return the variables of a job's zygote on one node.

    Raises:
        SecretMissing: The source of a secret is not on this node, or is not for ranks.
    """
    ifname = config.ifname or node_facts.interface_of(config.address)
    threads = str(config.cpus)
    return scrubbed_environment(
        {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # The import of numpy and pyarrow (pandas, datasets) must not start a thread before the fork.
            "OPENBLAS_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            # Indexes are those of the driver and of Ray; by default CUDA sorts devices of several kinds by speed.
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "GLOO_SOCKET_IFNAME": ifname,
            "NCCL_SOCKET_IFNAME": ifname,
            "REGROUP_COLLECTIVE_TIMEOUT_S": str(config.collective_timeout_s),
            "PYTHONUNBUFFERED": "1",
            **_compile_cache(),
            **{key: value for key, value in os.environ.items() if key.startswith("NCCL_")},
            **config.env,
            **{name: _secret(config, name) for name in config.secrets},
        }
    )


def rank_variables(config: AgentConfig, rank: int, device_index: int, scratch: Path) -> dict[str, str]:
    """Return the variables of a rank in addition to those of its zygote, which may have older secrets."""
    existing = {*os.environ, *config.env, *config.secrets}
    return {
        **{name: _secret(config, name) for name, source in config.secrets.items() if source.get("from_project")},
        "REGROUP_DEVICE_INDEX": str(device_index),
        orphans.VARIABLE: str(scratch),
        **tracker_variables(config, rank, existing),
    }


def data_function_environment(config: AgentConfig) -> dict[str, str]:
    """Return the variables of the process that runs a job's data function: those of its ranks without collectives.

    Raises:
        SecretMissing: The source of a secret is not on this node, or is not for ranks.
    """
    return scrubbed_environment(
        {
            "OMP_NUM_THREADS": "1",  # one such process runs for each processor of the reservation
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **config.env,
            **{name: _secret(config, name) for name in config.secrets},
        }
    )


def is_same_environment(one: AgentConfig, other: AgentConfig) -> bool:
    """Return True if a zygote of one config can serve the other: interpreter and variables are equal."""
    return _identity(one) == _identity(other)


def scrubbed_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment and `extra`, without the credentials of cluster, storage and database."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith(_HIDDEN)}, **extra}


def _compile_cache() -> dict[str, str]:
    """Return the variable of torch.compile's cache: a private folder of this node that outlives ranks and jobs."""
    if _COMPILE_CACHE in os.environ:
        return {}
    folder = Path(tempfile.gettempdir()) / f"regroup-compiled-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        is_private = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    except OSError:
        is_private = False
    return {_COMPILE_CACHE: str(folder)} if is_private else {}


def _is_of_platform(file: object) -> bool:
    """Return True if a file is Ray's token, or a file of the server in the same folder, as with a local cluster."""
    token = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token or not file:
        return False
    ray, found = Path(token).resolve(), Path(str(file)).resolve()
    return found == ray or (found.parent == ray.parent and found.name.startswith(_FILES_OF_SERVER))


def _secret(config: AgentConfig, name: str) -> str:
    source = config.secrets[name]
    if _is_of_platform(source.get("from_file")):
        raise node_facts.SecretMissing(
            f"secret {name}: file {source['from_file']} of the node belongs to the platform and is not for ranks; "
            "write the value to another folder of the node"
        )
    variable = source.get("from_env")
    if variable and variable.startswith(_HIDDEN):
        raise node_facts.SecretMissing(
            f"secret {name}: variable {variable} of the node belongs to the platform and is not for ranks; "
            "set the value under another name on the node"
        )
    return node_facts.secret(name, source, config.project_secrets)


def _identity(config: AgentConfig) -> tuple[object, ...]:
    return (
        config.interpreter, config.requirements, config.base, config.address, config.ifname, config.cpus, config.env,
        config.secrets, config.collective_timeout_s,
    )  # fmt: skip
