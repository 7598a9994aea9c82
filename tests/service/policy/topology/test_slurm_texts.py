"""Any text is a topology, or refused within a second with its place; spelling does not change a topology."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regroup.service.domain.topology import Level
from regroup.service.policy.topology.hostlist import TopologyError, expand_hostlist
from regroup.service.policy.topology.slurm_file import SlurmTopology, parse_topology
from tests.support.inputs.fuzz import damaged, fuzz_settings, limited_time

LEAFS = "SwitchName=s0 Nodes=n[1-4]\n"
INCLUDED = {"leafs": LEAFS, "loop": "Include loop\n", "yaml": "- {topology: a, flat: true}\n"}
SEEDS = (
    "SwitchName=s0 Nodes=dev[0-1]  LinkSpeed=100\nswitchname=s1 nodes=dev[2-3],spare\nSwitchName=t Switches=s[0-1]\n",
    'SwitchName = "s 0" Nodes = "n[1-4], n5"\r\nBlockName=b Nodes=n[1-5]\r\nBlockSizes=4,8\r\n',
    "\ufeffSwitchName=s0 Nodes=n[1-2],\\\nn3 # comment \\# more\nInclude leafs\nRingName=r Nodes=n[1-8]\n",
    "Include leafs\nInclude loop\nInclude nowhere*\nInclude yaml\n",
    "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=l Nodes=x[001-010]y[1,3]\n",
    "- topology: t\n  cluster_default: true\n  tree:\n    switches:\n      - {switch: s0, nodes: 'n[1-4]'}\n"
    "      - {switch: top, children: [s0]}\n- topology: u\n  block:\n    block_sizes: [4]\n    blocks:\n"
    "      - block: b\n        nodes: n[1-4]\n- {topology: v, torus3d: {}}\n",
    "- &a [*a]\n- ? {x: y}\n  : |\n    z\n- !!binary x\n--- 2\n",
)
PIECES = (
    "SwitchName=", "Switches=", "Nodes=", "BlockName=", "Include ", "leafs", "=", "a", "s0", "n[1-4]", "n[01-2,7]",
    '"', "\\", "\\\n", "#", "\n", " ", ",", "\r\n", "\t", "- topology: t\n", "  tree:\n", "{", "}", "[", "]", ": ",
    "&x", "*x", "<<", "\0", "\ufeff", "[0-99999]", "\x85", "\u2028", "%c",
)  # fmt: skip
FILES = st.sampled_from(["topology", "t.conf", "t.yaml"])


def read(path: str) -> bytes:
    """Return an included file."""
    if path not in INCLUDED:
        raise FileNotFoundError(2, "No such file or directory")
    return INCLUDED[path].encode()


@pytest.mark.fuzz
@fuzz_settings(60)
@given(damaged(SEEDS, PIECES) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join), FILES)
@example("Include \\\n\\\n", "t.conf")
@example("SwitchName=a Nodes=" + "[1]" * 3000, "t.conf")
@example("? &a [b]\n: c", "t.yaml")
@example("- !!binary x", "t.yaml")
@example("--- 1\n--- 2", "t.yaml")
@example("- {topology: [a], flat: true}", "t.yaml")
@example("\ufeff\ufeffSwitchName=a Nodes=x", "topology")
def test_any_text_gives_a_topology_or_an_error_with_its_file(text: str, file: str) -> None:
    check(text.encode("utf-8", "surrogatepass"), file)


@pytest.mark.fuzz
@fuzz_settings(30)
@given(st.binary(max_size=200), FILES)
@example(b"\xff\xfe", "topology")
@example(b"- \xff", "t.yaml")
@example(b"\xed\xa0\x80", "t.conf")
def test_any_bytes_give_a_topology_or_an_error_with_its_file(content: bytes, file: str) -> None:
    check(content, file)


@pytest.mark.fuzz
@fuzz_settings(60)
@given(
    damaged(["n[001-004,7]", "a,b c\td[1-2]-[3,5]x", "r[0-63]_b[0-41]", "[1-2]"], ["[", "]", "-", ",", "0", "99999"])
)
@example("a" + "[0-9]" * 8)
@example("a[0-199999]")
@example("a" * 249 + "[0-199999]")
def test_any_expression_is_expanded_or_refused(text: str) -> None:
    with limited_time():
        try:
            names = expand_hostlist(text)
        except TopologyError as error:
            assert len(str(error)) < 500
        else:
            assert all(names)


@pytest.mark.parametrize(
    ("begin", "repeated", "file"),
    [
        ("", "\n", "topology"), ("", " \n", "topology"), ("", "#\n", "topology"), ("", "\\", "t.conf"),
        ("", "\\\n", "t.conf"), ("", "a", "t.conf"), ("", "a=", "t.conf"), ("a", " ", "t.conf"),
        ("SwitchName=a Nodes=", ",", "t.conf"), ("SwitchName=a Nodes=", "[", "t.conf"),
        ("SwitchName=a Nodes=x[", "1,", "t.conf"), ("SwitchName=a Nodes=", "a,", "t.conf"),
        ("SwitchName=a Nodes=x", "[0-9]", "t.conf"), ("SwitchName=a Nodes=", "a[0-99999],", "t.conf"),
        ("", "[", "t.yaml"), ("", "{", "t.yaml"), ("", "- ", "t.yaml"), ("- {a: ", "'", "t.yaml"),
        ("", "&a ", "t.yaml"), ("- topology: ", "a", "t.yaml"), ("- ", "a: 1\n  ", "t.yaml"),
        ("Include ", "a", "t.conf"), ("Include ", "%c", "t.conf"),
    ],
)  # fmt: skip
def test_half_a_megabyte_is_read_in_seconds(begin: str, repeated: str, file: str) -> None:
    text = begin + repeated * (2**19 // len(repeated))
    check(text.encode(), file, limit_s=4.0)  # a time that grows with the square of the size takes minutes
    check(f"{text}=x".encode(), file, limit_s=4.0)


def check(content: bytes, file: str, limit_s: float = 1.0) -> None:
    """Check the result of any content: names, notes, or an error with a place and of bounded length."""
    with limited_time(limit_s):
        try:
            found = parse_topology(file, content, read)
        except TopologyError as error:
            assert str(error).startswith((file, *INCLUDED))
            assert len(str(error)) < 2000
        else:
            assert found.places or found.notes


_ENDS = st.sampled_from(["\n", "\r\n", " \n", " # comment\n", "\t#\\\n"])
_GAPS = st.sampled_from([" ", "  ", "\t", " \\\n", "\\\r\n "])
_EQUALS = st.sampled_from(["=", " = ", "= ", " =", "\\\n="])


@pytest.mark.fuzz
@fuzz_settings(40)
@given(st.data())
def test_the_spelling_does_not_change_the_topology(data: st.DataObject) -> None:
    """Write one topology with random spaces, quotes, cases, comments, continuation and included files."""
    lines = [
        ("SwitchName", "s0", "Nodes", "n1,n2"),
        ("SwitchName", "s1", "Nodes", "n[3-4]"),
        ("SwitchName", "t", "Switches", "s0,s1"),
    ]
    written = ["", ""]
    for first, name, second, value in lines:
        texts = list[str]()
        for key, text in ((first, name), (second, value)):
            spelled = data.draw(st.sampled_from([key, key.lower(), key.upper()]))
            is_quoted = data.draw(st.booleans())
            if is_quoted and data.draw(st.booleans()):
                text = text.replace(",", " , ")
            texts.append(spelled + data.draw(_EQUALS) + (f'"{text}"' if is_quoted else text))
        line = data.draw(_GAPS).join(texts) + data.draw(_ENDS)
        written[data.draw(st.integers(0, 1))] += line
    mark = data.draw(st.sampled_from(["", "\ufeff"]))
    main = f"{mark}{written[0]}{data.draw(st.sampled_from(['Include', 'include', 'INCLUDE']))} {'leafs'}\n"
    expected = {f"n{number}": {Level.RACK: "s0" if number < 3 else "s1", Level.BLOCK: "t"} for number in range(1, 5)}
    found = parse_topology("topology", main.encode(), lambda path: (mark + written[1]).encode())
    assert found == SlurmTopology(expected)
