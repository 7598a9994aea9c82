"""Parse Slurm's topology.conf and topology.yaml into the domains of nodes.

A leaf switch is a rack, the switch above it a block, and the next one a zone. A single root switch above all of them
has no information and is ignored. A Slurm block (`BlockName`) is a set of nodes that NVLink connects: a gpu_domain.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from regroup.service.domain.errors import SettingError
from regroup.service.domain.topology import Level

_MOST_NAMES = 1_000_000
_TIERS = (Level.RACK, Level.BLOCK, Level.ZONE)


class TopologyError(SettingError):
    """An invalid topology file: the place, the problem and the remedy."""


@dataclass
class _Parts:
    """Content of a file of either format."""

    nodes_of: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Switch → nodes directly below it."""
    parent: dict[str, str] = field(default_factory=dict[str, str])
    """Switch → switch above it."""
    blocks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    seen: set[str] = field(default_factory=set[str])
    """Switches that are described."""


NodeDomains = Mapping[str, Mapping[Level, str]]
"""Node → its domains."""


def parse_topology(text: str) -> NodeDomains:
    """Parse a topology file of either format.

    Raises:
        TopologyError: the file is invalid; names the line or entry and the problem.
    """
    parts = _Parts()
    is_conf = re.search(r"^\s*(switchname|blockname|blocksizes)\s*=", text, re.IGNORECASE | re.MULTILINE)
    if is_conf:
        _read_conf(text, parts)
    else:
        _read_yaml(text, parts)
    if not parts.nodes_of and not parts.blocks:
        raise TopologyError("the file names no nodes: add SwitchName=… Nodes=… lines, or a list of topologies in YAML")
    return _places(parts)


def expand_hostlist(text: str) -> list[str]:
    """Return the names of an expression such as `tux[0-3,12],login`; leading zeros are kept.

    Raises:
        TopologyError: a bracket is open, or a range is invalid.
    """
    names = list[str]()
    for item in _split(text):
        names += _expanded(item)
        if len(names) > _MOST_NAMES:
            raise TopologyError(f"{text[:60]!r} expands to more than {_MOST_NAMES:,} names")
    return names


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            break
        if letter == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if depth != 0:
        raise TopologyError(f"{text[:60]!r}: a bracket is not closed, or not opened")
    if last := text[start:].strip():
        yield last


def _expanded(item: str) -> list[str]:
    before, bracket, rest = item.partition("[")
    if not bracket:
        return [item] if item else []
    inner, _, after = rest.partition("]")
    tails = _expanded(after) or [""]
    found = list[str]()
    for part in inner.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or int(match[2] or match[1]) - int(match[1]) not in range(_MOST_NAMES):
            raise TopologyError(f"{item[:60]!r}: {part!r} must be an integer or a range such as 0-15")
        first, last, width = int(match[1]), int(match[2] or match[1]), len(match[1])
        found += [f"{before}{number:0{width}}{tail}" for number in range(first, last + 1) for tail in tails]
    return found


# ---------------------------------------------------------------- the two formats


def _read_conf(text: str, parts: _Parts) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            pairs = [word.split("=", 1) for word in words]
            if any(len(pair) != 2 for pair in pairs):
                raise TopologyError(f"{' '.join(words)[:60]!r} is not a list of KEY=VALUE")
            _conf_line({key.lower(): value for key, value in cast(list[tuple[str, str]], pairs)}, parts)
        except TopologyError as error:
            raise TopologyError(f"line {number}: {error}") from error


def _conf_line(values: dict[str, str], parts: _Parts) -> None:
    values.pop("linkspeed", None)
    if name := values.pop("switchname", ""):
        _add_switch(name, values.pop("switches", ""), values.pop("nodes", ""), parts)
    elif name := values.pop("blockname", ""):
        _add_block(name, values.pop("nodes", ""), parts)
    elif values.pop("blocksizes", None) is None:
        raise TopologyError("a line must begin with SwitchName=, BlockName= or BlockSizes=")
    if values:
        raise TopologyError(f"{sorted(values)[0]!r} is an unknown key; expected Switches, Nodes or LinkSpeed")


def _read_yaml(text: str, parts: _Parts) -> None:
    try:
        data: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TopologyError(f"the file is neither a topology.conf nor YAML: {error}") from error
    for at, topology in enumerate(_list(data, "the file")):
        where = f"topology {topology.get('topology', at + 1)!r}"
        kinds = topology.keys() & {"tree", "block", "flat"}
        if len(kinds) != 1:
            raise TopologyError(f"{where} must have one of tree, block and flat; it has {sorted(map(str, topology))}")
        if tree := topology.get("tree"):
            for switch in _list(_field(tree, "switches", where), f"switches of {where}"):
                name = _text(switch, "switch", f"a switch of {where}")
                _add_switch(name, str(switch.get("children") or ""), str(switch.get("nodes") or ""), parts)
        if block := topology.get("block"):
            for each in _list(_field(block, "blocks", where), f"blocks of {where}"):
                _add_block(_text(each, "block", f"a block of {where}"), str(each.get("nodes") or ""), parts)


def _list(data: object, where: str) -> list[dict[str, Any]]:
    entries = cast(list[object], data) if isinstance(data, list) else []
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise TopologyError(f"{where} must be a list of mappings, as in Slurm's topology.yaml")
    return cast(list[dict[str, Any]], entries)


def _field(data: object, name: str, where: str) -> object:
    if not isinstance(data, dict) or name not in data:
        raise TopologyError(f"{where} has no {name!r}")
    return cast(dict[str, object], data)[name]


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str | int) or not str(value):
        raise TopologyError(f"{where} has no name: {name!r} is {value!r}")
    return str(value)


def _add_switch(name: str, children: str, nodes: str, parts: _Parts) -> None:
    if name in parts.seen:
        raise TopologyError(f"switch {name!r} is described twice")
    if bool(children) == bool(nodes):
        raise TopologyError(f"switch {name!r} must have either nodes or switches below it")
    parts.seen.add(name)
    for child in expand_hostlist(children):
        if (other := parts.parent.get(child)) is not None:
            raise TopologyError(f"switch {child!r} is below both {other!r} and {name!r}")
        parts.parent[child] = name
    if nodes:
        parts.nodes_of[name] = expand_hostlist(nodes)


def _add_block(name: str, nodes: str, parts: _Parts) -> None:
    if name in parts.blocks:
        raise TopologyError(f"block {name!r} is described twice")
    parts.blocks[name] = expand_hostlist(nodes)


# ---------------------------------------------------------------- the domains of nodes


def _places(parts: _Parts) -> NodeDomains:
    if unknown := sorted(parts.parent.keys() - parts.seen):
        raise TopologyError(f"switch {unknown[0]!r} is below {parts.parent[unknown[0]]!r}, but never described")
    found: dict[str, dict[Level, str]] = {}
    chains = {leaf: _above(leaf, parts) for leaf in parts.nodes_of}
    roots = {chain[-1] for chain in chains.values()}
    for leaf, chain in chains.items():
        tiers = chain[:-1] if len(roots) == 1 and len(chain) == len(_TIERS) + 1 else chain
        if len(tiers) > len(_TIERS):
            names = " < ".join(chain)
            raise TopologyError(
                f"{len(chain)} tiers of switches ({names}); supported are rack, block, zone and one root"
            )
        for node in parts.nodes_of[leaf]:
            if (other := found.get(node)) is not None:
                raise TopologyError(f"node {node!r} is behind both {other[Level.RACK]!r} and {leaf!r}")
            found[node] = dict(zip(_TIERS, tiers, strict=False))
    for block, nodes in parts.blocks.items():
        for node in nodes:
            place = found.setdefault(node, {})
            if Level.GPU_DOMAIN in place:
                raise TopologyError(f"node {node!r} is in both blocks {place[Level.GPU_DOMAIN]!r} and {block!r}")
            place[Level.GPU_DOMAIN] = block
    return found


def _above(leaf: str, parts: _Parts) -> list[str]:
    """Return the switch and those above it."""
    chain = [leaf]
    while (above := parts.parent.get(chain[-1])) is not None:
        if above in chain:
            raise TopologyError(f"switches {' < '.join([*chain, above])} form a cycle")
        chain.append(above)
    return chain
