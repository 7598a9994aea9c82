"""Slurm's topology.conf and topology.yaml: the domains of nodes, notes, and errors with their places."""

import itertools

import pytest

from regroup.service.domain.topology import Level
from regroup.service.policy.topology.hostlist import TopologyError
from regroup.service.policy.topology.slurm_file import SlurmTopology, parse_topology

CONF = """
# leaves first
SwitchName=s0 Nodes=dev[0-1]  LinkSpeed=100
switchname=s1 nodes=dev[2-3],spare
SwitchName=s2 Nodes=far
SwitchName=spine0 Switches=s[0-1]
SwitchName=spine1 Switches=s2   # a comment
BlockName=nvl0 Nodes=dev[0-3]
BlockSizes=4
"""
YAML = """
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: s0, nodes: "dev[0-1]"}
      - {switch: s1, nodes: "dev[2-3],spare"}
      - {switch: s2, nodes: far}
      - {switch: spine0, children: "s[0-1]"}
      - {switch: spine1, children: s2}
- topology: nvlink
  block:
    block_sizes: [4]
    blocks:
      - {block: nvl0, nodes: "dev[0-3]"}
- topology: rest
  flat: true
"""


def parsed(text: str, file: str = "topology", **included: str) -> SlurmTopology:
    def read(path: str) -> bytes:
        if path not in included:
            raise FileNotFoundError(2, "No such file or directory")
        return included[path].encode()

    return parse_topology(file, text.encode(), read)


@pytest.mark.parametrize("text", [CONF, YAML])
def test_leaf_switches_are_racks_and_switches_above_them_are_blocks(text: str) -> None:
    places = parsed(text).places
    assert sorted(places) == ["dev0", "dev1", "dev2", "dev3", "far", "spare"]
    assert places["dev0"] == {Level.RACK: "s0", Level.BLOCK: "spine0", Level.GPU_DOMAIN: "nvl0"}
    assert places["spare"] == {Level.RACK: "s1", Level.BLOCK: "spine0"}
    assert places["far"] == {Level.RACK: "s2", Level.BLOCK: "spine1"}
    assert parsed(text).notes == ()


TWO_RACKS = {f"n{number}": {Level.RACK: "s0" if number < 5 else "s1", Level.BLOCK: "top"} for number in range(1, 9)}


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName = s0 Nodes = n[1-4]\nSwitchName =s1 Nodes= n[5-8]\n\tSwitchName= top\tSwitches =s[0-1]\n",
        'SwitchName="s0" Nodes="n[1-4]"\nSwitchName=s1 Nodes="n5, n[6-7] n8"\nSwitchName=top Switches="s[0-1]"\n',
        "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-6],\\\nn[7-8]\nSwitchName=top \\  \n Switches=s[0-1]\n",
        "\ufeffSwitchName=s0 Nodes=n[1-4]\r\nSwitchName=s1 Nodes=n5,\\\r\nn[6-8]\r\nSwitchName=top Switches=s[0-1]\r\n",
        "include leafs\nSwitchName=top Switches=s[0-1]",
        'Include deep/spines # "include" is case-insensitive\n',
        "SWITCHNAME=s0 NODES=n[1-4]#comment\n#SwitchName=s9 Nodes=x\\\nswitchname=s1 nodes=n[5-8]\n"
        "SwitchName=top Switches=s[0-1]",
        "- {topology: a, tree: {switches: [{switch: s0, nodes: [n1, 'n[2-4]']}, {switch: s1, nodes: 'n[5-8]'},"
        " {switch: top, children: [s0, s1]}]}}",
    ],
)
def test_each_spelling_that_slurm_reads_gives_the_same_topology(text: str) -> None:
    leafs = "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-8]\n"
    files = {"leafs": leafs, "deep/spines": "Include ../leafs\nSwitchName=top Switches=s[0-1]\n"}
    assert parsed(text, **files) == SlurmTopology(TWO_RACKS)


def test_one_root_above_zones_is_ignored_and_more_levels_are_noted() -> None:
    chain = ["leaf", "spine", "core", "top"]
    above = [f"SwitchName={upper} Switches={lower}" for lower, upper in itertools.pairwise(chain)]
    tall = "\n".join(["SwitchName=leaf Nodes=a", *above])
    assert parsed(tall).places["a"] == {Level.RACK: "leaf", Level.BLOCK: "spine", Level.ZONE: "core"}
    higher = parsed(f"{tall}\nSwitchName=more Switches=top")
    assert higher.places == parsed(tall).places
    assert higher.notes == (
        "leaf < spine < core < top < more: 5 levels of switches; the lowest three are rack, block and zone",
    )


@pytest.mark.parametrize(
    ("text", "places", "note"),
    [
        (
            "SwitchName=a Nodes=x\nSwitchName=b Nodes=x,y",
            {"x": "a", "y": "b"},
            "x: behind both 'a' and 'b'; 'a' is used",
        ),
        ("SwitchName=a Nodes=x Nodes=y", {"y": "a"}, "line 1: nodes is given twice; the last one is used, as in Slurm"),
        ("SwitchName=a\nSwitchName=b Nodes=x", {"x": "b"}, ""),
        ('SwitchName=a Nodes=""\nSwitchName=b Nodes=x', {"x": "b"}, ""),
        ("RingName=r Nodes=n[1-4]\nSwitchName=a Nodes=x", {"x": "a"}, "rings are not used"),
        ("RingName=r Nodes=n[1-4]", {}, "names no node"),
        ("- {topology: t, flat: true}", {}, "names no node"),
        (
            "# c\n---\n- {topology: t, tree: {switches: [{switch: a, nodes: x, children: b}, {switch: b, nodes: y}]}}",
            {"x": "a", "y": "b"},
            "line 3: the children of switch 'a' are ignored: it has nodes",
        ),
        (
            "- {topology: t, torus3d: {}}\n- {topology: u, tree: {switches: [{switch: a, nodes: x}]}}",
            {"x": "a"},
            "torus3d",
        ),
        (
            "- {topology: t, tree: {switches: [{switch: a, nodes: 'x,y'}]}}\n"
            "- {topology: u, cluster_default: True, tree: {switches: [{switch: a, nodes: x}]}}",
            {"x": "a", "y": "t/a"},
            "topology 't': x: an earlier topology applies to them",
        ),
    ],
)
def test_what_a_tree_cannot_express_is_noted(text: str, places: dict[str, str], note: str) -> None:
    found = parsed(text)
    assert {node: domains[Level.RACK] for node, domains in found.places.items()} == places
    assert (note in " ".join(found.notes)) if note else not found.notes


def test_a_switch_below_two_switches_is_below_the_last_one() -> None:
    found = parsed("SwitchName=a Nodes=x\nSwitchName=b Switches=a\nSwitchName=c Switches=a")
    assert found.places["x"][Level.BLOCK] == "c"
    assert found.notes == ("topology, line 3: switch 'a' is below both 'b' and 'c'; the last one is used",)
    blocks = parsed("BlockName=a Nodes=x\nBlockName=b Nodes=x")
    assert blocks.places == {"x": {Level.GPU_DOMAIN: "a"}}
    assert blocks.notes == ("x: in both blocks 'a' and 'b'; 'a' is used",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"topology: the file describes nothing: add lines such as SwitchName=s0 Nodes=n\[1-4\]"),
        ("topology: t", "topology, line 1: 'topology: t' is not a list of KEY=VALUE"),
        ("[]", r"topology: the file must be a list of topologies.*SwitchName=s0 Nodes=n\[1-4\]"),
        ("{", "topology, line [12]: the file is neither a topology.conf nor YAML"),
        ("\n\n- a\n- {b", "topology, line [34]: the file is neither"),
        ("SwitchName=a Nodes=x[1-", r"topology, line 1: 'x\[1-': a bracket is not closed.* write a list as a\[1-4,7\]"),
        ("\n\nSwitchName=a Nodes=x[5-1]", "line 3: .*'5-1' must be an integer or a range such as 0-15"),
        ("SwitchName=a Nodes=x[y]", "'y' must be an integer or a range"),
        ("SwitchName=a Nodes=x[0-99999999]", "'0-99999999' has more than 200,000 names"),
        ("SwitchName=a Nodes=x Switches=b", "'a' must have either Nodes= or Switches="),
        ("SwitchName=a Nodes=x\nSwitchName=a Nodes=y", "line 2: switch 'a' is described twice, first at .*line 1"),
        ("SwitchName=l Nodes=x\nSwitchName=a Switches=b", "line 2: switch 'b' is below 'a', but never described: add"),
        ("SwitchName=l Nodes=x\nSwitchName=a Switches=l,b\nSwitchName=b Switches=a", "line [23]: .* form a cycle"),
        ("SwitchName=l Nodes=x\nSwitchName=a Switches=b\nSwitchName=b Switches=a", "form a cycle"),
        ("SwitchName=a Nodes=x Speed=3", "'speed' is an unknown key; expected switchname, switches, nodes, linkspeed"),
        ("SwitchName=a Nodes x", "'Nodes x' is not a list of KEY=VALUE"),
        ("SwitchName=a Nodes=x, y", "'y' is not a list of KEY=VALUE; a value with spaces must be in quotes"),
        ("SwitchName=a Nodes= LinkSpeed=3", "'LinkSpeed=3' is not a name"),
        ('SwitchName=a Nodes="x', "is not a name: names have no spaces, quotes"),
        ("SwitchName=a Nodes+=x", r"'Nodes' has \+=, which a topology does not support; use ="),
        ("Switch=a\nSwitchName=b Nodes=x", "line 1: 'switch' does not begin a line of a topology; expected Switch"),
        ("NodeName=n[1-4] CPUs=8", "'nodename' does not begin a line"),
        ("BlockName=a Nodes=x\nBlockName=a Nodes=y", "line 2: block 'a' is described twice"),
        ("- topology: t\n  tree: {}", "line 2: topology 't' has no 'switches'"),
        ("- topology: t\n  tree: {switches: [{nodes: x}]}", "line 2: a switch of topology 't' has no name"),
        ("- topology: t", "line 1: topology 't' must have one of tree, block, flat, ring, torus3d"),
        ("- {topology: t, flat: true, partitions: x}", "unknown field 'partitions'"),
        ("- topology: t\n  tree: {switches: 3}", "line 2: switches of topology 't' must be a list"),
        ("- topology: t\n  topology: u\n  flat: true", "line 2: 'topology' is given twice"),
        ("- &a [*a]", "line 1: aliases are not supported"),
        ("[" * 100_000, "line 1: more than 16 levels"),
        ("- topology: t\n  tree: {switches: [{switch: a, nodes: [[x]]}]}", "line 2: must be a text such as"),
        ("Include nowhere", "topology, line 1: the included file 'nowhere' cannot be read: No .*; correct the path"),
        ("Include *.conf", r"line 1: the included file '\*\.conf' cannot be read: .*; write one Include for each file"),
        ("Include one two", "line 1: Include takes one path"),
        ("Include %c.conf", "line 1: Include '%c.conf': %c stands for ClusterName"),
        ("Include loop", "loop, line 2: loop includes loop: a cycle"),
        ("Include wrong", "wrong, line 2: 'x y' is not a list of KEY=VALUE"),
        ("Include 0", "files include each other 16 deep, the limit"),
        ("\n".join(["Include leaf"] * 300), "more than 256 included files, the limit"),
    ],
)  # fmt: skip
def test_an_error_has_file_line_and_the_accepted_form(text: str, message: str) -> None:
    included = {
        "loop": "\nInclude loop", "wrong": "\nx y", "leaf": "#",
        **{str(depth): f"Include {depth + 1}" for depth in range(99)},
    }  # fmt: skip
    with pytest.raises(TopologyError, match=message):
        parsed(text, **included)


def test_bytes_of_yaml_must_be_utf_8() -> None:
    with pytest.raises(TopologyError, match=r"t\.yaml, line 2: bytes that are not UTF-8"):
        parse_topology("t.yaml", b"-\n- \xe9", lambda path: b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("SwitchName=a Nodes=x".encode("utf-16"), "t.conf: the file is in UTF-16; save it as UTF-8"),
        (b"#\nSwitchName=a\0", "t.conf, line 2: a NUL character"),
        (b"#\n#\nSwitchName=\xe9 Nodes=x", "t.conf, line 3: bytes that are not UTF-8"),
        (b"\xe9", "t.conf, line 1: bytes that are not UTF-8"),
        (b"", "t.conf: the file describes nothing: add lines such as SwitchName="),
    ],
)
def test_binary_content_is_refused_with_its_line(content: bytes, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        parse_topology("t.conf", content, lambda path: b"")


def test_bytes_of_a_comment_need_no_encoding() -> None:
    assert parse_topology("t.conf", b"# \xe9t\xe9\nSwitchName=a Nodes=x", lambda path: b"").places


def test_large_topologies_are_read_in_time() -> None:
    lines = [f"SwitchName=s{leaf} Nodes=n[{leaf * 40}-{leaf * 40 + 39}]" for leaf in range(2500)]
    found = parsed("\n".join([*lines, "SwitchName=top Switches=s[0-2499]"]))
    assert len(found.places) == 100_000
    many = "- {topology: t, block: {blocks: [{block: b, nodes: 'a[1-99999]'}]}}\n" * 3
    with pytest.raises(TopologyError, match=r"t\.yaml, line 3: the topology has more than 200,000 names, the limit"):
        parsed(many, "t.yaml")
    with pytest.raises(TopologyError, match=r"line 3: the topology has more than 200,000 names, the limit"):
        parsed("SwitchName=a Nodes=a[1-99999]\nSwitchName=b Nodes=b[1-99999]\nSwitchName=c Nodes=c[1-99999]")
