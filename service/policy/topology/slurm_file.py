"""Parse Slurm's topology.conf and topology.yaml into the domains of nodes.

A leaf switch is a rack, the switch above it a block, and the next one a zone. A single root switch above all of them
has no information and is ignored. A Slurm block (`BlockName`) is a set of nodes that NVLink connects: a gpu_domain.

A file is read as Slurm reads it, within limits. If it has more than a tree can express, such as a node behind two
switches, one part of it is used, and a note reports this.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from regroup.service.domain.topology import Level
from regroup.service.policy.topology.hostlist import MAX_NAMES, TopologyError, checked_name, expand_hostlist, shortened
from regroup.service.policy.topology.slurm_conf import Place, Reader, Statement, decode, read_statements
from regroup.service.policy.topology.slurm_yaml import read_yaml

_TIERS = (Level.RACK, Level.BLOCK, Level.ZONE)
_MOST_NOTES = 10
_MAX_SWITCH_LEVELS = 20
_KEYS = {
    "switchname": ("switchname", "switches", "nodes", "linkspeed"),
    "blockname": ("blockname", "nodes"),
    "ringname": ("ringname", "nodes"),
    "blocksizes": ("blocksizes",),
}
"""First key of a line → all its keys."""
_YAML_SUFFIXES = (".yaml", ".yml")
_YAML_BEGIN = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*[-\[{%]")
"""A text whose first line that is neither empty nor a comment is YAML. No line of a conf file begins so."""

NodeDomains = Mapping[str, Mapping[Level, str]]
"""Node → its domains."""


@dataclass(frozen=True)
class SlurmTopology:
    """The content of a topology file."""

    places: NodeDomains
    notes: tuple[str, ...] = ()
    """Parts of the file that regroup does not use, for people."""


@dataclass
class _Parts:
    """One topology: its switches and blocks."""

    name: str = ""
    nodes_of: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Leaf switch → nodes directly below it."""
    parent: dict[str, str] = field(default_factory=dict[str, str])
    """Switch → switch above it."""
    blocks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    described: dict[str, Place] = field(default_factory=dict[str, Place])
    """Switch → where it is described."""
    above_at: dict[str, Place] = field(default_factory=dict[str, Place])
    """Switch → where it is named as a child."""
    count: int = 0
    """Number of names, with those of the topologies before it in the file."""
    notes: list[str] = field(default_factory=list[str])


def parse_topology(file: str, content: bytes, read: Reader) -> SlurmTopology:
    """Parse a topology file of either format.

    Args:
        file: path of the file; included files are relative to its folder.
        content: its bytes.
        read: reads an included file.

    Raises:
        TopologyError: the file is invalid; names file, line, problem and the accepted form.
    """
    text = decode(content, file)
    suffix = posixpath.splitext(file)[1].lower()
    is_yaml = suffix in _YAML_SUFFIXES or (suffix != ".conf" and _YAML_BEGIN.match(text) is not None)
    topologies = _from_yaml(file, text) if is_yaml else [_from_conf(file, text, read)]
    places, notes = _merged(topologies)
    if not places:
        notes = [*notes, "the topology file names no node: no domain is known from it"]
    more = [f"and {len(notes) - _MOST_NOTES} more"] if len(notes) > _MOST_NOTES else []
    return SlurmTopology(places, (*notes[:_MOST_NOTES], *more))


# ---------------------------------------------------------------- the two formats


def _from_conf(file: str, text: str, read: Reader) -> _Parts:
    parts = _Parts()
    statements = 0
    for statement in read_statements(file, text, read):
        statements += 1
        try:
            _add_statement(statement, parts)
        except _WithoutPlace as error:
            raise TopologyError(f"{statement.place}: {error}") from error
    if not statements:
        raise TopologyError(f"{file}: the file describes nothing: add lines such as SwitchName=s0 Nodes=n[1-4]")
    return parts


def _add_statement(statement: Statement, parts: _Parts) -> None:
    first = statement.pairs[0][0]
    if first not in _KEYS:
        raise _WithoutPlace(
            f"{shortened(first)} does not begin a line of a topology; expected SwitchName=, BlockName=, BlockSizes=, "
            "RingName= or Include"
        )
    values: dict[str, str] = {}
    for key, value in statement.pairs:
        if key not in _KEYS[first]:
            raise _WithoutPlace(f"{shortened(key)} is an unknown key; expected {', '.join(_KEYS[first])}")
        if key in values:
            parts.notes.append(f"{statement.place}: {key} is given twice; the last one is used, as in Slurm")
        values[key] = value
    match first:
        case "switchname":
            _add_switch(parts, statement.place, values[first], values.get("switches", ""), values.get("nodes", ""))
        case "blockname":
            _add_block(parts, values[first], values.get("nodes", ""))
        case "ringname":
            parts.notes.append(f"{statement.place}: rings are not used for placement")
        case _:
            pass  # regroup chooses block sizes by the job


def _from_yaml(file: str, text: str) -> list[_Parts]:
    """Return the topologies, the default one first."""
    found: list[_Parts] = []
    listed = sorted(read_yaml(file, text), key=lambda each: not each.is_default)
    for topology in listed:
        parts = _Parts(topology.name, count=found[-1].count if found else 0)
        if topology.kind in ("ring", "torus3d"):
            parts.notes.append(
                f"{topology.place}: topology {shortened(topology.name)}: a {topology.kind} is not used for placement"
            )
        for entry in topology.entries:
            try:
                if topology.kind == "tree":
                    children = entry.children
                    if children and entry.nodes:  # an error in topology.conf, in Slurm too
                        parts.notes.append(
                            f"{entry.place}: the children of switch {shortened(entry.name)} are ignored: it has nodes"
                        )
                        children = ""
                    _add_switch(parts, entry.place, entry.name, children, entry.nodes)
                else:
                    _add_block(parts, entry.name, entry.nodes)
            except _WithoutPlace as error:
                raise TopologyError(f"{entry.place}: {error}") from error
        found.append(parts)
    return found


class _WithoutPlace(TopologyError):
    """A problem of one entry, to which its place is added."""


def _add_switch(parts: _Parts, place: Place, name: str, children: str, nodes: str) -> None:
    _check_name(parts, name)
    if (earlier := parts.described.get(name)) is not None:
        raise _WithoutPlace(f"switch {name!r} is described twice, first at {earlier}: write one line for each switch")
    if children and nodes:
        raise _WithoutPlace(f"switch {name!r} must have either Nodes= or Switches= below it, not both")
    parts.described[name] = place
    for child in _names(parts, children):
        if (other := parts.parent.get(child)) is not None:
            parts.notes.append(f"{place}: switch {child!r} is below both {other!r} and {name!r}; the last one is used")
        parts.parent[child], parts.above_at[child] = name, place
    if not children:
        parts.nodes_of[name] = _names(parts, nodes)


def _add_block(parts: _Parts, name: str, nodes: str) -> None:
    _check_name(parts, name)
    if name in parts.blocks:
        raise _WithoutPlace(f"block {name!r} is described twice: write one line for each block")
    parts.blocks[name] = _names(parts, nodes)


def _check_name(parts: _Parts, name: str) -> None:
    try:
        checked_name(name)
    except TopologyError as error:
        raise _WithoutPlace(str(error)) from error
    _count(parts, 1)


def _names(parts: _Parts, hostlist: str) -> list[str]:
    try:
        found = expand_hostlist(hostlist)
    except TopologyError as error:
        raise _WithoutPlace(str(error)) from error
    _count(parts, len(found))
    return found


def _count(parts: _Parts, names: int) -> None:
    parts.count += names
    if parts.count > MAX_NAMES:
        raise _WithoutPlace(f"the topology has more than {MAX_NAMES:,} names, the limit")


# ---------------------------------------------------------------- the domains of nodes


def _merged(topologies: Sequence[_Parts]) -> tuple[NodeDomains, list[str]]:
    """Return the domains from all topologies. If two of them name a node, the first one applies."""
    found: dict[str, dict[Level, str]] = {}
    taken: dict[tuple[Level, str], str] = {}
    notes: list[str] = []
    for parts in topologies:
        notes += parts.notes
        twice = list[str]()
        for node, domains in _places(parts, notes).items():
            place = found.setdefault(node, {})
            if domains.keys() & place.keys():
                twice.append(node)
                continue
            for level, name in domains.items():
                owner = taken.setdefault((level, name), parts.name)
                place[level] = name if owner == parts.name else f"{parts.name}/{name}"
        if twice:
            notes.append(f"topology {shortened(parts.name)}: {_listed(twice)}: an earlier topology applies to them")
    return found, notes


def _places(parts: _Parts, notes: list[str]) -> dict[str, dict[Level, str]]:
    if unknown := sorted(parts.parent.keys() - parts.described.keys()):
        raise TopologyError(
            f"{parts.above_at[unknown[0]]}: switch {unknown[0]!r} is below {parts.parent[unknown[0]]!r}, but never "
            f"described: add SwitchName={unknown[0]} with its Nodes= or Switches="
        )
    found: dict[str, dict[Level, str]] = {}
    above = {switch: _above(switch, parts) for switch in parts.described}
    chains = {leaf: above[leaf] for leaf in parts.nodes_of}
    roots = {chain[-1] for chain in chains.values()}
    twice: dict[tuple[str, str], list[str]] = {}
    for leaf, chain in chains.items():
        tiers = chain[:-1] if len(roots) == 1 and len(chain) == len(_TIERS) + 1 else chain
        if len(tiers) > len(_TIERS):
            names = " < ".join(chain)
            notes.append(f"{names}: {len(chain)} levels of switches; the lowest three are rack, block and zone")
        for node in parts.nodes_of[leaf]:
            if node in found:
                twice.setdefault((found[node][Level.RACK], leaf), []).append(node)
            else:
                found[node] = dict(zip(_TIERS, tiers, strict=False))
    notes += [
        f"{_listed(nodes)}: behind both {one!r} and {two!r}; {one!r} is used" for (one, two), nodes in twice.items()
    ]
    twice.clear()
    for block, nodes in parts.blocks.items():
        for node in nodes:
            place = found.setdefault(node, {})
            if place.setdefault(Level.GPU_DOMAIN, block) != block:
                twice.setdefault((place[Level.GPU_DOMAIN], block), []).append(node)
    notes += [
        f"{_listed(nodes)}: in both blocks {one!r} and {two!r}; {one!r} is used" for (one, two), nodes in twice.items()
    ]
    return found


def _above(leaf: str, parts: _Parts) -> list[str]:
    """Return the switch and those above it."""
    chain = [leaf]
    while (above := parts.parent.get(chain[-1])) is not None:
        if above in chain:
            raise TopologyError(f"{parts.described[above]}: switches {' < '.join([*chain, above])} form a cycle")
        if len(chain) == _MAX_SWITCH_LEVELS:
            raise TopologyError(
                f"{parts.described[above]}: more than {_MAX_SWITCH_LEVELS} levels of switches above {leaf!r}, the limit"
            )
        chain.append(above)
    return chain


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(shown[:3]) + more
