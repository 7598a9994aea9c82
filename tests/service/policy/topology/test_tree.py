from regroup.service.domain.topology import DEFAULT_LABELS, Level, Node, domains_of
from regroup.service.policy.topology.tree import build_tree, find_topology_problems, with_domains

RACK, ZONE = DEFAULT_LABELS[Level.RACK], DEFAULT_LABELS[Level.ZONE]


def node(name: str, **labels: str) -> Node:
    plain = {"rack": RACK, "zone": ZONE, "gpu": DEFAULT_LABELS[Level.GPU_DOMAIN], "block": DEFAULT_LABELS[Level.BLOCK]}
    names = {plain.get(key, key): value for key, value in labels.items()}
    return Node(name, name, "10.0.0.1", labels=names, cpus=4, free_cpus=3, gpus=8, free_gpus=2)


def test_labels_take_precedence_over_the_topology_file() -> None:
    nodes = [node("a", rack="r1", zone="z"), node("b"), node("c", **{"my/rack": "r9"})]
    places = {"a": {Level.RACK: "s1", Level.BLOCK: "spine"}, "b": {Level.RACK: "s2"}}
    assert [each.domains for each in with_domains(nodes, places=places)] == [
        ("z", "spine", "r1", ""), ("", "", "s2", ""), ("", "", "", ""),
    ]  # fmt: skip
    assert with_domains(nodes, {**DEFAULT_LABELS, Level.RACK: "my/rack"})[2].domains[2] == "r9"
    again = with_domains(with_domains(nodes, places=places))
    assert again[0].domains[2] == "r1", "a second call changes nothing"
    assert domains_of(nodes[0]) == ("z", "", "r1", "")


def test_contradictions_are_reported_and_handled() -> None:
    nodes = with_domains(
        [
            node("a", rack="r1", block="b1", gpu="g"),
            node("b", rack="r1", block="b2"),
            node("c", block="b2", rack="r2", gpu="g"),
            node("d"),
        ],
        places={"a": {Level.RACK: "s7"}},
    )
    problems = find_topology_problems(nodes, places={"a": {Level.RACK: "s7"}})
    assert find_topology_problems(nodes[::-1], places={"a": {Level.RACK: "s7"}}) == problems, (
        "the order of the nodes does not matter"
    )
    assert "rack 'r1' is in block 'b1' (a) and block 'b2' (b): treated as 2 domains" in problems
    assert "gpu_domain 'g' is in rack 'r1' (a) and rack 'r2' (c): treated as 2 domains" in problems
    assert "d: no block is known; each is treated as its own block" in problems
    assert "a: the label names rack 'r1', the file 's7'; the label takes precedence" in problems
    assert "b, c, d: not in the topology file" in problems
    assert find_topology_problems(with_domains([node("a", rack="r"), node("b", rack="r")])) == []


def test_the_tree_has_only_the_levels_with_labels() -> None:
    (first, second) = build_tree(with_domains([node("b", rack="r1"), node("a", rack="r1"), node("c", rack="r2")]))
    assert (first.level, first.name, first.nodes, first.free_gpus, first.cpus) == (Level.RACK, "r1", 2, 4, 8)
    assert [(child.level, child.name) for child in first.children] == [(Level.NODE, "a"), (Level.NODE, "b")]
    assert second.name == "r2" and build_tree([]) == ()
    assert [domain.level for domain in build_tree(with_domains([node("a")]))] == [Level.NODE]
