"""Commands of `regroup probe`: measure the cluster, and show the measured values."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table
from regroup.api.live.formatting import duration, number
from regroup.service.domain.byte_text import bytes_text

if TYPE_CHECKING:
    from regroup.api.schemas.probes import Probe

app = typer.Typer(cls=GroupedCommands, invoke_without_command=True, rich_markup_mode=None)
Device = Annotated[
    str | None, typer.Option("--device", metavar="KIND", help="cpu or cuda.  [default: cuda if the cluster has GPUs]")
]
Ranks = Annotated[
    int | None,
    typer.Option("--ranks", metavar="N", help="Number of ranks.  [default: as many as fit on the open nodes]"),
]
Cpus = Annotated[
    int, typer.Option("--cpus", metavar="N", help="Cores per rank. Use the value of the jobs that you want to predict.")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="Cluster to measure.  [default: the default cluster]")
]
Project = Annotated[
    str,
    typer.Option(
        "--project", metavar="NAME", autocompletion=complete_project, help="Project whose devices the probe uses."
    ),
]


@app.callback()
def probe(
    context: typer.Context,
    device: Device = None,
    ranks: Ranks = None,
    cpus: Cpus = 1,
    cluster: Cluster = None,
    project: Project = "default",
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Measure the cluster with a dedicated job: matrix products, collectives and their results, links between nodes."""
    if context.invoked_subcommand is not None:
        return
    from regroup.api.cli.commands.watch import first_view
    from regroup.api.cli.common import exit_codes
    from regroup.api.cli.common.connection import connect
    from regroup.api.cli.common.interrupt import continuing
    from regroup.api.cli.common.output import exit_with
    from regroup.api.client.discovery import feed
    from regroup.api.live.display import display
    from regroup.api.live.follow import follow

    request: dict[str, Any] = {"device": device, "ranks": ranks, "cpus": cpus, "cluster": cluster, "project": project}
    with connect(server, patient=True) as client:
        job = client.probe(**{name: value for name, value in request.items() if value is not None})
        with continuing(job):
            if not as_json:
                with display() as out:
                    follow(feed(client, job.id), first_view(job), out)
            job = client.wait(job.id)
        if job.state != "SUCCEEDED":
            print_message(f"{job.id} {job.state}; regroup why {job.id}")
            exit_with(exit_codes.JOB_NOT_SUCCEEDED)
        _print([each for each in client.probes() if each.job_id == job.id], as_json=as_json)


def probe_show(server: Server = None, as_json: AsJson = False) -> None:
    """Show the newest measured values of each device type."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.probes()
    _print(found, as_json=as_json)


app.command("show")(probe_show)


def _print(found: "Sequence[Probe]", *, as_json: bool) -> None:
    if as_json:
        print_json({"probes": found})
        return
    if not found:
        print_message("nothing was measured yet; `regroup probe` measures the cluster")
    for each in found:
        print(*describe_probe(each), sep="\n")
        print()
        print_table(("LEVEL", "BANDWIDTH", "SLOWEST", "LATENCY", "PAIRS"), _levels(each))
        print()
        print_table(("NODE", "RANKS", "MEMORY", "MATRIX PRODUCTS (SLOWEST DEVICE)"), _nodes(each))
        print()
        print_table(("COLLECTIVE", "RANKS", "SIZE", "TIME", "BUS BANDWIDTH"), _collectives(each))
        print()
        print_table(("MATRIX PRODUCTS", "SIZE", "PER DEVICE"), _products(each))
        if each.steps:
            print()
            print_table(("TINY STEP", "LAYERS", "MICRO-BATCHES", "TIME"), _steps(each))


def describe_probe(probe: "Probe") -> Iterator[str]:
    """Describe the probe, then each anomaly it found."""
    at = datetime.fromtimestamp(probe.time_s, UTC)
    yield f"{probe.ranks} ranks of {probe.device} ({probe.kind}), measured {at:%Y-%m-%d %H:%M} UTC by {probe.job_id}"
    for anomaly in probe.anomalies:
        yield f"! {anomaly.kind} {' - '.join(anomaly.nodes)}: {anomaly.message}"


def _levels(probe: "Probe") -> Iterator[tuple[str, ...]]:
    for each in probe.levels:
        yield (
            "within a node" if each.level == "device" else f"between {each.level}s",
            _rate(each.bytes_s), _rate(each.slowest_bytes_s), _short(each.latency_s), str(each.pairs or "-"),
        )  # fmt: skip


def _nodes(probe: "Probe") -> Iterator[tuple[str, ...]]:
    for each in probe.nodes:
        products = ", ".join(f"{dtype} {number(flops)}FLOP/s" for dtype, flops in each.flops.items())
        yield each.name, str(each.ranks), _rate(each.memory_bytes_s), products


def _collectives(probe: "Probe") -> Iterator[tuple[str, ...]]:
    for each in probe.collectives:
        ranks = f"{each.ranks} on a node" if each.scope == "node" else f"all {each.ranks}"
        yield each.name, ranks, bytes_text(each.size_bytes), _short(each.seconds), _rate(each.bus_bytes_s)


def _products(probe: "Probe") -> Iterator[tuple[str, ...]]:
    for each in probe.matmuls:
        yield each.dtype, str(each.side), f"{number(each.flops)}FLOP/s"


def _steps(probe: "Probe") -> Iterator[tuple[str, ...]]:
    for each in probe.steps:
        yield each.kind, str(each.layers), str(each.micro_batches), _short(each.seconds)


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:.3g} GB/s"


def _short(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else duration(seconds)
