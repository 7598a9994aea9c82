"""Environment variables named `REGROUP_…` that are not settings of the control plane, for checks and documentation."""

import difflib
from collections.abc import Collection, Iterable, Mapping

VARIABLES: Mapping[str, tuple[str, str]] = {
    "REGROUP_SERVER": ("command line, Python client", "URL of the server, for example `http://127.0.0.1:8500`"),
    "REGROUP_TOKEN": (
        "command line, Python client",
        "token of the server. Without it, and without `REGROUP_TOKEN_FILE` (also a setting of the server), clients "
        "read the token of this machine's server from its state directory",
    ),
    "REGROUP_PROFILE": (
        "command line, Python client",
        "name of the profile to use instead of the one that `regroup profiles use` chose",
    ),
    "REGROUP_CONFIG_DIR": (
        "command line, Python client",
        "folder of the profiles of `regroup login`. Default: `regroup` in `XDG_CONFIG_HOME` or `~/.config`",
    ),
    "REGROUP_CA_FILE": (
        "command line, Python client",
        "file with the certificates of authorities to trust for a server with TLS, PEM. Default: those of the system",
    ),
    "REGROUP_NODE_LABELS": (
        "agents on Kubernetes",
        "labels of the Kubernetes node that become labels of the Ray node; the manifests set it",
    ),
    "REGROUP_RANK_ENVIRONMENT": (
        "agents",
        "names of further variables of the node that ranks get where they run as users of their own, by commas; see "
        "[Isolation](../operations/isolation.md)",
    ),
    "REGROUP_SECRETS_DIR": ("agents", "folder of mounted Kubernetes Secrets; see [Secrets](../guides/secrets.md)"),
    "REGROUP_VENVS_DIR": ("agents", "folder of the virtual environments that jobs ask for"),
    "REGROUP_VENVS_MAX_BYTES": ("agents", "space for these environments; the least recently used ones are removed"),
    "REGROUP_JOB_ID": ("user code; set in each rank", "id of the job"),
    "REGROUP_JOB_NAME": ("user code; set in each rank", "name of the job"),
    "REGROUP_JOB_URL": (
        "user code; set in each rank",
        "page of the job in the console, if the server knows its address",
    ),
    "REGROUP_GENERATION": ("user code; set in each rank", "number of the generation"),
    "REGROUP_TENSORBOARD_DIR": (
        "user code; set in each rank",
        "folder for TensorBoard events; see [Experiment trackers](../guides/trackers.md)",
    ),
    "REGROUP_DEVICE_INDEX": ("user code; set in each rank", "index of the rank's CUDA device on its node"),
    "REGROUP_COLLECTIVE_TIMEOUT_S": ("the rank; set by the agent", "timeout of collectives, in seconds"),
    "REGROUP_UMASK": ("the rank; set by server or agent", "umask of user code; files of the platform are private"),
    "REGROUP_SCRATCH": ("internal", "scratch folder of a job; marks the processes of the job"),
    "REGROUP_LAUNCH": ("internal", "launch record of a rank, from the zygote"),
    "REGROUP_STARTED_BY": ("internal", "mark of the processes that `regroup serve` starts; `regroup down` finds them"),
    "REGROUP_LISTENER_FD": ("internal", "listening socket of a server that starts again in place"),
    "REGROUP_RAY_CLUSTER": ("internal", "mark of the processes of a local Ray cluster"),
}
"""Name → its readers, and its meaning in Markdown."""

PREFIX = "REGROUP_"
_OF_TESTS = ("REGROUP_TEST_", "REGROUP_REQUIRE", "REGROUP_FUZZ_S")


def unknown_variables(present: Iterable[str], settings: Collection[str]) -> list[tuple[str, str | None]]:
    """Return the variables that nothing reads, in order, each with the most similar known name or None.

    Args:
        present: names of variables of a process.
        settings: names of the variables that are settings of the control plane.
    """
    names = [*VARIABLES, *settings]
    endings = [name.removeprefix(PREFIX) for name in names]
    found: list[tuple[str, str | None]] = []
    for name in sorted(present):
        if name.startswith(PREFIX) and name not in names and not name.startswith(_OF_TESTS):
            similar = difflib.get_close_matches(name.removeprefix(PREFIX), endings, 1, 0.7)
            found.append((name, PREFIX + similar[0] if similar else None))
    return found
