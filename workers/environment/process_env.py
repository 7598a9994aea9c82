"""Environment variables of a job's zygote and of its ranks, without the credentials of the platform."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from regroup.workers.contract.agent_config import AgentConfig
from regroup.workers.environment.tracker_env import tracker_variables
from regroup.workers.os import node_facts, orphans
from regroup.workers.os.secret_source import SecretSource

_COMPILE_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_HIDDEN = (
    "RAY_", "AWS_", "GOOGLE_", "AZURE_", "REGROUP_DATABASE", "REGROUP_TOKEN", "REGROUP_SECRETS_KEY",
    "CUDA_VISIBLE_DEVICES", "PG",
)  # fmt: skip
"""Prefixes of the platform's own variables: credentials of cluster, storage, database and API, and devices."""
_FILES_OF_SERVER = ("api.token", "regroup.db", "secrets.key")
_TUNABLES = "GLIBC_TUNABLES"
_HUGE_PAGES = "glibc.malloc.hugetlb"
"""With 1, malloc asks for huge pages (madvise). Then a restore fills fresh memory two to five times as fast, and the
memory of a dead rank is free a hundred times as soon."""
PASSED_VARIABLE = "REGROUP_RANK_ENVIRONMENT"
"""Variable of a node with the names of further variables that ranks with a user of their own get, by commas."""
_PASSED = frozenset({
    "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PATH", "PYTHONHASHSEED", "PYTHONPATH", "TERM", "TZ",
    "REGROUP_RAY_CLUSTER", "REGROUP_UMASK",
})  # fmt: skip
_PASSED_PREFIXES = (
    "CUDA_", "FI_", "GLOO_", "HIP_", "HSA_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTORCH_",
    "RCCL_", "ROCR_", "TORCH_", "TORCHINDUCTOR_", "TRITON_", "UCX_",
)  # fmt: skip
"""Variables of the node that such ranks get. They tell where programs and devices are, and none is a credential."""


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
            _TUNABLES: _tunables(os.environ.get(_TUNABLES, "")),
            **(_compile_cache() if not config.rank_users else {}),
            **{key: value for key, value in os.environ.items() if key.startswith("NCCL_")},
            **config.env,
            **_secrets(config),
        },
        listed_only=bool(config.rank_users),
    )


def user_variables(config: AgentConfig, user: int | None, home: Path) -> dict[str, str]:
    """Return the variables of all processes of a job with a user of its own: its folders, which no other job can open.

    The spec may set each of them.
    """
    if user is None:
        return {}
    folders = {"HOME": home, "TMPDIR": home / "tmp", _COMPILE_CACHE: home / "compiled"}
    name = f"regroup-{user}"  # libraries look up a name, and this user has no entry in the machine's list
    variables = {**{key: str(folder) for key, folder in folders.items()}, "USER": name, "LOGNAME": name}
    return {key: value for key, value in variables.items() if key not in config.env and key not in config.secrets}


def rank_variables(config: AgentConfig, rank: int, device_index: int, scratch: Path) -> dict[str, str]:
    """Return the variables of a rank in addition to those of its zygote, which may have older secrets."""
    existing = {*os.environ, *config.env, *config.secrets}
    return {
        **{name: _secret(config, name) for name, source in config.secrets.items() if source.from_project},
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
            **_secrets(config),
        },
        listed_only=bool(config.rank_users),
    )


def is_same_environment(one: AgentConfig, other: AgentConfig) -> bool:
    """Return True if a zygote of one config can serve the other: interpreter and variables are equal."""
    return _identity(one) == _identity(other)


def scrubbed_environment(extra: Mapping[str, str], *, listed_only: bool = False) -> dict[str, str]:
    """Return this process's environment and `extra`, without the credentials of cluster, storage and database.

    With `listed_only`, for a job with a user of its own, only variables that are on a list pass.
    """
    if listed_only:
        named = {name.strip() for name in os.environ.get(PASSED_VARIABLE, "").split(",")}
        passed = {
            key: value
            for key, value in os.environ.items()
            if key in named or ((key in _PASSED or key.startswith(_PASSED_PREFIXES)) and not key.startswith(_HIDDEN))
        }
    else:
        passed = {key: value for key, value in os.environ.items() if not key.startswith(_HIDDEN)}
    return {**passed, **extra}


def _tunables(present: str) -> str:
    """Return the node's tunables of the C library, with huge pages unless the node decided about them."""
    return present if _HUGE_PAGES in present else f"{present}:{_HUGE_PAGES}=1".lstrip(":")


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


def _secrets(config: AgentConfig) -> dict[str, str]:
    if config.rank_users:
        for name, source in config.secrets.items():
            _check_own_file(name, source)
    return {name: _secret(config, name) for name in config.secrets}


def _check_own_file(name: str, source: SecretSource) -> None:
    """Refuse files outside the folder of secrets: the agent would read them as root, for any editor of a project."""
    folder = Path(os.environ.get(node_facts.SECRETS_DIR_VARIABLE) or node_facts.DEFAULT_SECRETS_DIR).resolve()
    file = source.from_file
    if file and not Path(file).resolve().is_relative_to(folder):
        raise node_facts.SecretMissing(
            f"secret {name}: file {file} of the node is outside {folder}. Where ranks run as users of their own, only "
            f"files of this folder are for ranks; write the value there, or set {node_facts.SECRETS_DIR_VARIABLE}"
        )


def _secret(config: AgentConfig, name: str) -> str:
    source = config.secrets[name]
    if _is_of_platform(source.from_file):
        raise node_facts.SecretMissing(
            f"secret {name}: file {source.from_file} of the node belongs to the platform and is not for ranks; "
            "write the value to another folder of the node"
        )
    variable = source.from_env
    if variable and variable.startswith(_HIDDEN):
        raise node_facts.SecretMissing(
            f"secret {name}: variable {variable} of the node belongs to the platform and is not for ranks; "
            "set the value under another name on the node"
        )
    return node_facts.secret(name, source, config.project_secrets)


def _identity(config: AgentConfig) -> tuple[object, ...]:
    return (
        config.interpreter, config.requirements, config.base, config.address, config.ifname, config.cpus, config.env,
        config.secrets, config.collective_timeout_s, config.rank_users,
    )  # fmt: skip
