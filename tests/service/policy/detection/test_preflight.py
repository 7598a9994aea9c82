"""Preflight findings: the nodes at fault, in particular for links with two ends."""

import pytest

from regroup.service.domain.states import Reason
from regroup.service.policy.detection.node_quarantine import NodeEventKind
from regroup.service.policy.detection.preflight import (
    Finding,
    UnfitNode,
    assign_probe_peers,
    find_unfit_nodes,
    may_be_link_failure,
)
from regroup.service.policy.recovery.classify import Cause, RankFailure

LINK, PREFLIGHT = NodeEventKind.LINK, NodeEventKind.PREFLIGHT


def links(*ends: str) -> list[Finding]:
    """Return findings of broken links. `ab` means that a cannot reach b."""
    return [Finding(near, "link", f"{near} is cut", far) for near, far in ends]


def unfit_nodes(findings: list[Finding], nodes: str, most: int = 1) -> dict[str, tuple[NodeEventKind, bool]]:
    return {
        unfit.node_id: (unfit.fault, unfit.is_excluded)
        for unfit in find_unfit_nodes(findings, assign_probe_peers(nodes, most))
    }


def test_each_node_probes_as_many_peers_as_probe_it() -> None:
    assert assign_probe_peers("") == assign_probe_peers("a") == assign_probe_peers("a", 32) == {}
    assert assign_probe_peers("ab") == {"a": ("b",), "b": ("a",)} == assign_probe_peers("ab", 32)
    assert assign_probe_peers("abc") == {"a": ("b",), "b": ("c",), "c": ("a",)}
    assert (
        assign_probe_peers("abc", 2)
        == {"a": ("b", "c"), "b": ("c", "a"), "c": ("a", "b")}
        == assign_probe_peers("abc", 32)
    )
    some = assign_probe_peers([str(n) for n in range(100)], 32)
    assert (
        {len(reached) for reached in some.values()}
        == {32}
        == {sum(node in reached for reached in some.values()) for node in some}
    )


@pytest.mark.parametrize(
    ("reason", "error_class", "may_be"),
    [
        (Reason.HANG, "", True),
        (Reason.RANK_EXIT, "collateral", True),
        (Reason.IO_ERROR, "io", True),
        (Reason.RANK_EXIT, "", False),
        (Reason.USER_ERROR, "user", False),
        (Reason.AGENT_LOST, "", False),
    ],
)
def test_some_failures_may_be_failures_of_a_link(reason: Reason, error_class: str, may_be: bool) -> None:
    failure = (
        RankFailure(0, error_class, "RuntimeError", "reset by peer", "", 3, "backward", 1.0) if error_class else None
    )
    assert may_be_link_failure(Cause(reason, "", 1.0, failure=failure)) is may_be


def test_a_local_finding_is_a_fault_of_the_node() -> None:
    findings = [Finding("b", "device", "core 3 is faulty"), Finding("b", "scratch", "disk full")]
    assert find_unfit_nodes(findings, assign_probe_peers("ab")) == (
        UnfitNode("b", PREFLIGHT, "core 3 is faulty; disk full", True),
    )
    assert find_unfit_nodes([], assign_probe_peers("ab")) == ()


def test_a_broken_link_is_a_fault_of_both_ends_and_excludes_one() -> None:
    ends = {"b": (LINK, True), "a": (LINK, False)}
    assert unfit_nodes(links("ab"), "ab") == ends
    assert unfit_nodes(links("ab"), "abcd") == ends
    assert unfit_nodes(links("ab", "ba"), "ab") == ends, "one end is excluded, not both"


def test_a_node_without_working_links_is_the_only_faulty_one() -> None:
    assert unfit_nodes(links("ab", "bc"), "abcd") == {"b": (PREFLIGHT, True)}
    assert unfit_nodes(links("da", "ab"), "abcd") == {"a": (PREFLIGHT, True)}


def test_an_unfit_node_explains_its_broken_links() -> None:
    findings = [*links("ab", "bc"), Finding("b", "device", "GPU 0 is lost")]
    assert unfit_nodes(findings, "abc") == {"b": (PREFLIGHT, True)}


def test_a_network_outage_does_not_exclude_every_node() -> None:
    found = unfit_nodes(links("ab", "bc", "cd", "da"), "abcd")
    assert set(found) == set("abcd") and all(fault is LINK for fault, _ in found.values())
    assert sum(is_excluded for _, is_excluded in found.values()) == 2


def test_with_all_pairs_the_node_with_more_broken_links_is_excluded() -> None:
    assert unfit_nodes(links("ab", "ba"), "abc", 32) == {"b": (LINK, True), "a": (LINK, False)}, (
        "either end may be excluded"
    )
    assert unfit_nodes(links("ac", "ca", "ad", "da"), "abcd", 32) == {
        "a": (LINK, True), "c": (LINK, False), "d": (LINK, False),
    }  # fmt: skip
    assert unfit_nodes(links("ab", "ca", "da"), "abcd", 32)["a"] == (LINK, True)


def test_two_nodes_without_working_links_are_both_at_fault() -> None:
    pairs = ("ab", "ba", "ac", "ca", "bc", "cb", "db", "bd", "dc", "cd")
    assert unfit_nodes(links(*pairs), "abcd", 32) == {"b": (PREFLIGHT, True), "c": (PREFLIGHT, True)}


def test_one_of_two_disconnected_halves_remains() -> None:
    cut = [f"{one}{other}" for one in "ab" for other in "cd"]
    found = unfit_nodes(links(*cut, *(pair[::-1] for pair in cut)), "abcd", 32)
    remaining = {node for node in "abcd" if not found[node][1]}
    assert remaining in ({"a", "b"}, {"c", "d"}) and {fault for fault, _ in found.values()} == {LINK}
