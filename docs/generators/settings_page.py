"""Page with the settings of the control plane and every environment variable, from the code that reads them."""

import ast
import json
import re

import typer.main

from generators.source import PRODUCT, ROOT, attribute_docs, find_class, parse_module, table_row
from regroup.api.cli.main import app
from regroup.service.settings import Settings

_HEAD = """# Settings and environment variables

The control plane reads its settings from the flags of `regroup serve` and from environment variables. A flag
overrides a variable. A list or mapping is JSON. `make docs` writes this page from `service/settings.py` and from the
code that reads the other variables.

## Settings of the control plane

| variable | flag of `serve` | default | meaning |
|---|---|---|---|
"""
_OTHERS = """
## Other environment variables

| variable | used by | meaning |
|---|---|---|
"""
_VARIABLES = {
    "REGROUP_SERVER": ("command line, Python client", "URL of the server, for example `http://127.0.0.1:8500`"),
    "REGROUP_TOKEN": (
        "command line, Python client",
        "token of the server. Without it, and without `REGROUP_TOKEN_FILE` (also a setting of the server), clients "
        "read the token of this machine's server from its state directory",
    ),
    "REGROUP_NODE_LABELS": (
        "agents on Kubernetes",
        "labels of the Kubernetes node that become labels of the Ray node; the manifests set it",
    ),
    "REGROUP_SECRETS_DIR": ("agents", "folder of mounted Kubernetes Secrets; see [Secrets](../guides/secrets.md)"),
    "REGROUP_VENVS_DIR": ("agents", "folder of the virtual environments that jobs ask for"),
    "REGROUP_VENVS_MAX_BYTES": ("agents", "space for these environments; the least recently used ones are removed"),
    "REGROUP_JOB_ID": ("user code; set in each rank", "id of the job"),
    "REGROUP_JOB_NAME": ("user code; set in each rank", "name of the job"),
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
    "REGROUP_RAY_CLUSTER": ("internal", "mark of the processes of a local Ray cluster"),
}
_NOT_VARIABLES = {"REGROUP_DATABASE"}
"""Prefixes, and names that only appear in lists of variables that ranks must not get."""


def render() -> str:
    """Return the page.

    Raises:
        LookupError: the code reads a variable that this file does not describe, or does not read one that it
            describes.
    """
    docs = attribute_docs(find_class(ROOT / "service" / "settings.py", "Settings"))
    flags = {
        parameter.name: parameter.opts[0]
        for parameter in typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    }
    rows: list[str] = []
    variables = {f"REGROUP_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "", {}) else json.dumps(field.default, default=str)
        flag = f"`{flags[name]}`" if name in flags else ""
        default = f"`{default.strip(chr(34))}`" if default else ""
        rows.append(table_row(f"`REGROUP_{name.upper()}`", flag, default, docs.get(name, "") or _meaning(name)))
    found = _names_in_code() - variables - _NOT_VARIABLES
    if found != _VARIABLES.keys():
        raise LookupError(
            f"describe or remove in docs/generators/settings_page.py: {sorted(found ^ _VARIABLES.keys())}"
        )
    others = [table_row(f"`{name}`", user, meaning) for name, (user, meaning) in sorted(_VARIABLES.items())]
    return _HEAD + "\n".join(rows) + "\n" + _OTHERS + "\n".join(others) + "\n"


def _meaning(name: str) -> str:
    """Return the meaning of a setting whose name says it."""
    return {"host": "Address that the server listens on. Only loopback addresses are allowed."}.get(name, "")


def _names_in_code() -> set[str]:
    """Return each string constant that is the name of a variable."""
    return {
        node.value
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("REGROUP_[A-Z_]+", node.value)
    }
