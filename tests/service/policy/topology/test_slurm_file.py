import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regroup.service.domain.topology import Level
from regroup.service.policy.topology.slurm_file import TopologyError, expand_hostlist, parse_topology

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


@pytest.mark.parametrize("text", [CONF, YAML])
def test_leaf_switches_are_racks_and_switches_above_them_are_blocks(text: str) -> None:
    places = parse_topology(text)
    assert sorted(places) == ["dev0", "dev1", "dev2", "dev3", "far", "spare"]
    assert places["dev0"] == {Level.RACK: "s0", Level.BLOCK: "spine0", Level.GPU_DOMAIN: "nvl0"}
    assert places["spare"] == {Level.RACK: "s1", Level.BLOCK: "spine0"}
    assert places["far"] == {Level.RACK: "s2", Level.BLOCK: "spine1"}


def test_one_root_above_zones_is_ignored_and_a_second_one_is_refused() -> None:
    chain = ["leaf", "spine", "core", "top"]
    above = [f"SwitchName={upper} Switches={lower}" for lower, upper in itertools.pairwise(chain)]
    tall = "\n".join(["SwitchName=leaf Nodes=a", *above])
    assert parse_topology(tall)["a"] == {Level.RACK: "leaf", Level.BLOCK: "spine", Level.ZONE: "core"}
    with pytest.raises(TopologyError, match=r"5 tiers of switches \(leaf < spine < core < top < more\)"):
        parse_topology(f"{tall}\nSwitchName=more Switches=top")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a list of mappings"),
        ("{", "neither a topology.conf nor YAML"),
        ("SwitchName=a Nodes=x[1-", "line 1: 'x.1-': a bracket is not closed"),
        ("SwitchName=a Nodes=x[5-1]", "'5-1' must be an integer or a range"),
        ("SwitchName=a Nodes=x[y]", "'y' must be an integer or a range"),
        ("SwitchName=a Nodes=x[0-99999999]", "must be an integer or a range"),
        ("SwitchName=a", "'a' must have either nodes or switches"),
        ("SwitchName=a Nodes=x Switches=b", "'a' must have either nodes or switches"),
        ("SwitchName=a Nodes=x\nSwitchName=a Nodes=y", "line 2: switch 'a' is described twice"),
        ("SwitchName=a Nodes=x\nSwitchName=b Nodes=x", "node 'x' is behind both 'a' and 'b'"),
        ("SwitchName=l Nodes=x\nSwitchName=a Switches=b", "'b' is below 'a', but never described"),
        ("SwitchName=a Nodes=x\nSwitchName=b Switches=a\nSwitchName=c Switches=a", "below both 'b' and 'c'"),
        ("SwitchName=l Nodes=x\nSwitchName=a Switches=l,b\nSwitchName=b Switches=a", "form a cycle"),
        ("SwitchName=a Nodes=x Speed=3", "'speed' is an unknown key"),
        ("SwitchName=a Nodes x", "is not a list of KEY=VALUE"),
        ("Switch=a\nSwitchName=b Nodes=x", "line 1: a line must begin with SwitchName="),
        ("BlockName=a Nodes=x\nBlockName=b Nodes=x", "node 'x' is in both blocks 'a' and 'b'"),
        ("BlockSizes=4", "the file names no nodes"),
        ("- topology: t\n  tree: {}", "'t' has no 'switches'|names no nodes"),
        ("- topology: t\n  tree: {switches: [{nodes: x}]}", "a switch of topology 't' has no name"),
        ("- topology: t", "must have one of tree, block and flat"),
        ("- topology: t\n  tree: {switches: 3}", "switches of topology 't' must be a list"),
    ],
)
def test_an_error_has_its_location(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        parse_topology(text)


@settings(deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="SwitchName=Nodes[]-0,\n #", max_size=60))
def test_any_text_gives_a_topology_or_a_topology_error(text: str) -> None:
    try:
        parse_topology(text)
    except TopologyError as error:
        assert str(error)


def test_expanded_names_keep_leading_zeros() -> None:
    assert expand_hostlist("a[08-10],b,c[1,3]-ib[0-1]") == [
        "a08", "a09", "a10", "b", "c1-ib0", "c1-ib1", "c3-ib0", "c3-ib1",
    ]  # fmt: skip
    assert expand_hostlist("") == []
