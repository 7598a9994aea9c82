"""Commands for a server on this machine: serve and down; and demo, which starts its own server."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from regroup.api.cli.common.options import AsJson, StateDir
from regroup.api.cli.common.output import exit_with, print_json, print_message

Host = Annotated[
    str | None,
    typer.Option("--host", help="Address to bind; all but loopback need TLS or a proxy.  [default: 127.0.0.1]"),
]
UnixSocket = Annotated[
    Path | None, typer.Option("--unix-socket", metavar="PATH", help="Unix socket to bind instead of an address.")
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain of the server, PEM.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of --tls-cert, PEM.")]
SecretsKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--secrets-key-file",
        metavar="FILE",
        help="Keys that encrypt stored secrets, one per line, the newest first.  [default: in the state directory]",
    ),
]
BehindProxy = Annotated[bool, typer.Option("--behind-proxy", help="A proxy with TLS sends all requests.")]
PublicHosts = Annotated[
    list[str] | None,
    typer.Option("--public-host", metavar="NAME", help="Host name under which clients reach the server. Repeatable."),
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", min=0, max=65535, help="Port to bind; 0 selects a free one.  [default: 8500]"),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="URL of the database, postgresql://….  [default: a SQLite file in the state directory]",
    ),
]
StorageUri = Annotated[
    str | None,
    typer.Option(
        "--storage-uri",
        metavar="URI",
        help="Storage of jobs whose spec names none: file, s3 or gs.  [default: in the state directory]",
    ),
]
BlobUri = Annotated[
    str | None,
    typer.Option(
        "--blob-uri",
        metavar="URI",
        help="Storage of code archives; every node must be able to read it: file, s3 or gs.  "
        "[default: in the state directory]",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", metavar="HOST:PORT", help="Join this Ray cluster instead of starting a local one."),
]
GatewayUrl = Annotated[
    str | None,
    typer.Option("--gateway-url", metavar="URL", help="Use the Ray cluster of this `regroup gateway` instead."),
]
ClustersFile = Annotated[
    str | None,
    typer.Option("--clusters-file", metavar="FILE", help="Serve the clusters of this file, each behind its gateway."),
]
LocalNodes = Annotated[
    int | None,
    typer.Option("--local-nodes", metavar="N", min=0, help="Ray nodes for training on this machine.  [default: 1]"),
]
Slots = Annotated[
    int | None,
    typer.Option("--slots-per-node", metavar="M", min=1, help="CPU ranks for each local node.  [default: 2]"),
]
AllowFaults = Annotated[
    bool, typer.Option("--allow-faults", help="Inject the faults that a spec lists, to test recovery.")
]
RankUsers = Annotated[
    str | None,
    typer.Option(
        "--rank-users", metavar="FIRST-LAST", help="Run each job as a user of its own, with an id of this range."
    ),
]
Directory = Annotated[Path, typer.Option("--directory", metavar="DIR", help="Folder for loss.png and summary.json.")]
Steps = Annotated[
    int | None,
    typer.Option("--steps", metavar="N", min=60, help="Number of steps of each run.  [default: as in the example]"),
]
Retain = Annotated[bool, typer.Option("--keep", help="Keep the state directory: database, logs, checkpoints.")]

Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        min=0,
        max=3600,
        help="Time from SIGTERM to SIGKILL for the programs of jobs. 0 kills them at once.",
    ),
]
_QUIET_S = 1.0
"""Time after which `down` states that it waits for programs."""
_WAIT_LINE_S = 5.0
"""Interval between two such lines."""


def serve(
    host: Host = None,
    port: Port = None,
    state_dir: StateDir = None,
    database_url: DatabaseUrl = None,
    storage_uri: StorageUri = None,
    blob_uri: BlobUri = None,
    ray_address: RayAddress = None,
    gateway_url: GatewayUrl = None,
    clusters_file: ClustersFile = None,
    local_nodes: LocalNodes = None,
    slots_per_node: Slots = None,
    allow_faults: AllowFaults = False,
    unix_socket: UnixSocket = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = False,
    public_hosts: PublicHosts = None,
    secrets_key_file: SecretsKeyFile = None,
    rank_users: RankUsers = None,
) -> None:
    """Start the control plane on this machine and serve until interrupted.

    Its local Ray and the jobs there keep running; `regroup down` stops them. All other settings are environment
    variables, REGROUP_*: see docs/deploy.md.
    """
    settings = _settings(
        host=host,
        port=port,
        state_dir=state_dir,
        database_url=database_url,
        storage_uri=storage_uri,
        blob_uri=blob_uri,
        ray_address=ray_address,
        gateway_url=gateway_url,
        clusters_file=clusters_file,
        local_nodes=local_nodes,
        slots_per_node=slots_per_node,
        allow_faults=allow_faults or None,
        unix_socket=unix_socket,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy or None,
        public_hosts=tuple(public_hosts) if public_hosts else None,
        secrets_key_file=secrets_key_file,
        rank_users=rank_users,
    )
    from regroup.api.serve import serve as serve_until_interrupted

    serve_until_interrupted(settings)


def down(state_dir: StateDir = None, grace: Grace = 30.0, as_json: AsJson = False) -> None:
    """Stop everything that serve started on this machine: the server, its local Ray, and the jobs that run there.

    The programs of jobs get SIGTERM first, so that they can save their work.
    """
    from regroup.api.serve import down as end_everything

    ended = end_everything(_settings(state_dir=state_dir).state_dir, grace, _wait_printer())
    if as_json:
        print_json({"ended": ended})
    else:
        print_message("stopped: " + ", ".join(ended) if ended else "nothing was running")


def _wait_printer() -> Callable[[int, float], None]:
    """Return a function that prints on standard error that programs still save: after a moment, then now and then."""
    printed_s = time.monotonic() + _QUIET_S - _WAIT_LINE_S

    def show(alive: int, left_s: float) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= _WAIT_LINE_S:
            printed_s = time.monotonic()
            programs = "1 program" if alive == 1 else f"{alive} programs"
            print_message(f"{programs} of jobs got SIGTERM and may save for {left_s:.0f} s more; Ctrl-C ends the wait")

    return show


def demo(directory: Directory = Path("demo"), steps: Steps = None, retain: Retain = False) -> None:
    """Train on text, kill a rank half-way, and compare with a run without faults; stop all processes at the end."""
    from regroup.api.cli.demo.runner import demo as run_demo

    exit_with(run_demo(directory, steps, retain=retain))


def _settings(**given: Any) -> Any:
    """Return the server's settings from the given values and the environment.

    Raises:
        SettingError: a setting is invalid.
    """
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from regroup.service.domain.errors import FieldIssue, SettingError
    from regroup.service.settings import Settings
    from regroup.service.spec.issues import describe_error

    flags = {name: value for name, value in given.items() if value is not None}

    def name(place: tuple[int | str, ...]) -> str:
        """Return the flag or the variable that has the value."""
        field = str(place[0]) if place else "settings"
        return "--" + field.replace("_", "-") if field in flags else f"REGROUP_{field.upper()}"

    def issue(item: Any) -> FieldIssue:
        """Return the issue of one error. Settings that contradict each other have a field in the context only."""
        context = item.get("ctx") or {}
        if item["loc"] or "field" not in context:
            return FieldIssue(name(item["loc"]), describe_error(item), item["input"] if item["loc"] else None)
        return FieldIssue(name((context["field"],)), describe_error(item), context["value"])

    try:
        return Settings(**flags)
    except ValidationError as error:
        raise SettingError([issue(item) for item in error.errors(include_url=False)]) from error
    except SettingsError as error:  # a variable that should be JSON
        found = re.search(r'field "(\w+)"', str(error))
        variable = f"REGROUP_{found[1].upper()}" if found else "an environment variable"
        raise SettingError([FieldIssue(variable, "must be JSON", os.environ.get(variable))]) from error
