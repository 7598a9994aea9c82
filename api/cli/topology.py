"""The verb topology."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from regroup.api.cli.options import AsJson, Server
from regroup.api.cli.output import print_json

if TYPE_CHECKING:
    from regroup.api.topology import Domain


def topology(server: Server = None, as_json: AsJson = False) -> None:
    """Show where nodes are: zones, blocks, racks and GPU domains, with what is free, and what does not fit together."""
    from regroup.api.cli.connection import connect

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
    """Name and what is free of each domain, the inner ones below."""
    for domain in domains:
        yield f"{'  ' * depth}{domain.level} {domain.name or '(not known)'}", _free(domain)
        yield from tree_lines(domain.children, depth + 1)


def _free(domain: "Domain") -> str:
    cpus = f"{domain.free_cpus:g}/{domain.cpus:g} CPUs"
    return f"{domain.free_gpus:g}/{domain.gpus:g} GPUs, {cpus} free" if domain.gpus else f"{cpus} free"
