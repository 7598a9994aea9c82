"""Read Slurm's topology.yaml, with the line of each entry, and within limits on depth and size."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from regroup.service.policy.topology.hostlist import TopologyError, shortened
from regroup.service.policy.topology.slurm_conf import MAX_BYTES, Place

MAX_DEPTH = 16
KINDS = ("tree", "block", "flat", "ring", "torus3d")
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_FORM = "a list of topologies, as in Slurm's topology.yaml: - topology: NAME, with one of " + ", ".join(KINDS)


@dataclass(frozen=True)
class YamlEntry:
    """One switch or one block."""

    place: Place
    name: str
    nodes: str
    """Hostlist of nodes directly below it."""
    children: str = ""
    """Hostlist of switches directly below it."""


@dataclass(frozen=True)
class YamlTopology:
    """One entry of the list."""

    place: Place
    name: str
    kind: str
    is_default: bool
    entries: tuple[YamlEntry, ...]


def read_yaml(file: str, text: str) -> list[YamlTopology]:
    """Return the topologies of a file.

    Raises:
        TopologyError: the file is not YAML or not a list of topologies, or exceeds a limit.
    """
    if (wrong := re.search(r"[\ud800-\udfff]", text)) is not None:
        line = text.count("\n", 0, wrong.start()) + 1
        raise TopologyError(f"{Place(file, line)}: bytes that are not UTF-8; save the file as UTF-8")
    if len(text) > MAX_BYTES:
        raise TopologyError(f"{file}: the file has more than {MAX_BYTES // 2**20} MiB, the limit of topology.yaml")
    try:
        _check_events(file, text)
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        lines = text.count("\n") + 1  # the end of the text is on a line of its own for the parser
        place = file if mark is None else Place(file, min(mark.line + 1, lines))
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise TopologyError(f"{place}: the file is neither a topology.conf nor YAML: {problem}") from error
    if not isinstance(root, yaml.SequenceNode) or not root.value:
        raise TopologyError(
            f"{file}: the file must be {_FORM}; or lines of a topology.conf: SwitchName=s0 Nodes=n[1-4]"
        )
    return [_topology(file, node, number) for number, node in enumerate(root.value, 1)]


def _check_events(file: str, text: str) -> None:
    """Refuse what can expand or recurse without a limit, before a tree is built."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise TopologyError(f"{_place(file, event)}: aliases are not supported; write the value again")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise TopologyError(f"{_place(file, event)}: more than {MAX_DEPTH} levels, the limit")


def _topology(file: str, node: yaml.Node, number: int) -> YamlTopology:
    fields = _fields(file, node, f"the file must be {_FORM}")
    place = _place(file, node)
    name = _text(file, fields["topology"]) if "topology" in fields else f"#{number}"
    kinds = [kind for kind in KINDS if kind in fields]
    if len(kinds) != 1:
        got = shortened(", ".join(fields))
        raise TopologyError(f"{place}: topology {shortened(name)} must have one of {', '.join(KINDS)}; it has {got}")
    if unknown := sorted(fields.keys() - {"topology", "cluster_default", *kinds}):
        raise TopologyError(
            f"{place}: topology {shortened(name)} has the unknown field {shortened(unknown[0])}; expected topology, "
            f"cluster_default and one of {', '.join(KINDS)}"
        )
    (kind,) = kinds
    is_default = "cluster_default" in fields and _text(file, fields["cluster_default"]).lower() in ("true", "yes", "on")
    entries: tuple[YamlEntry, ...] = ()
    if kind == "tree":
        entries = tuple(_entries(file, fields[kind], "switches", "switch", f"topology {shortened(name)}"))
    elif kind == "block":
        entries = tuple(_entries(file, fields[kind], "blocks", "block", f"topology {shortened(name)}"))
    return YamlTopology(place, name, kind, is_default, entries)


def _entries(file: str, node: yaml.Node, list_name: str, name_of: str, where: str) -> Iterator[YamlEntry]:
    fields = _fields(file, node, f"{where}: must be a mapping with {list_name!r}")
    if list_name not in fields:
        raise TopologyError(f"{_place(file, node)}: {where} has no {list_name!r}")
    listed = fields[list_name]
    if not isinstance(listed, yaml.SequenceNode):
        raise TopologyError(f"{_place(file, listed)}: {list_name} of {where} must be a list of mappings")
    for each in listed.value:
        entry = _fields(file, each, f"{list_name} of {where} must be a list of mappings")
        name = _text(file, entry[name_of]) if name_of in entry else ""
        if not name:
            raise TopologyError(f"{_place(file, each)}: a {name_of} of {where} has no name: add {name_of}: NAME")
        nodes, children = (_hostlist(file, entry[key]) if key in entry else "" for key in ("nodes", "children"))
        yield YamlEntry(_place(file, each), name, nodes, children if name_of == "switch" else "")


def _fields(file: str, node: yaml.Node, problem: str) -> Mapping[str, yaml.Node]:
    """Return the fields of a mapping, with keys in lower case."""
    if not isinstance(node, yaml.MappingNode):
        raise TopologyError(f"{_place(file, node)}: {problem}")
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = _text(file, key).lower()
        if name in found:
            raise TopologyError(f"{_place(file, key)}: {shortened(name)} is given twice")
        found[name] = value
    return found


def _hostlist(file: str, node: yaml.Node) -> str:
    """Return a hostlist from a text, or from a list of texts."""
    if isinstance(node, yaml.SequenceNode):
        return ",".join(_text(file, each) for each in node.value)
    return _text(file, node)


def _text(file: str, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise TopologyError(f"{_place(file, node)}: must be a text such as node[01-04]")
    return "" if node.tag == _NULL else str(node.value)


def _place(file: str, marked: yaml.Node | yaml.Event) -> Place:
    return Place(file, marked.start_mark.line + 1)
