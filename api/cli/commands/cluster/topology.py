"""The command topology."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json
from regroup.api.live.formatting import ranges

if TYPE_CHECKING:
    from regroup.api.schemas.topology import Domain, Island


def topology(server: Server = None, as_json: AsJson = False) -> None:
    """Show the topology: zones, blocks, racks and GPU domains with their free capacity, and inconsistencies."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.topology()
    if as_json:
        print_json(found)
        return
    lines = list(tree_lines(found.domains))
    width = max((len(name) for name, _ in lines), default=0)
    print(*(f"{name:{width}}  {free}" for name, free in lines), sep="\n")
    for problem in found.problems:
        print(f"! {problem}")


def tree_lines(domains: "Sequence[Domain]", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Return name and free capacity of each domain, with inner domains indented below it."""
    for domain in domains:
        yield f"{'  ' * depth}{domain.level} {domain.name or '(unknown)'}", _free(domain)
        for island in domain.islands:
            yield f"{'  ' * (depth + 1)}{_named(island)}", _where(island)
        yield from tree_lines(domain.children, depth + 1)


def _named(island: "Island") -> str:
    return f"GPUs {ranges(island.gpus)}" if island.gpus else "cores"


def _where(island: "Island") -> str:
    joined = {"nvswitch": "NVSwitch, ", "nvlink": "NVLink, ", "numa": ""}[island.link]
    cores = f", cores {island.cores}" if island.cores else ""
    return f"{joined}NUMA {ranges(island.numa) or 'unknown'}{cores}"


def _free(domain: "Domain") -> str:
    cpus = f"{domain.free_cpus:g}/{domain.cpus:g} CPUs"
    return f"{domain.free_gpus:g}/{domain.gpus:g} GPUs, {cpus} free" if domain.gpus else f"{cpus} free"
