"""Whose fault is what nodes find before ranks start, above all of a link that has two ends."""

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
    """`ab`: a does not reach b."""
    return [Finding(near, "link", f"{near} is cut", far) for near, far in ends]


def given_up(findings: list[Finding], nodes: str, most: int = 1) -> dict[str, tuple[NodeEventKind, bool]]:
    return {
        unfit.node_id: (unfit.fault, unfit.is_excluded)
        for unfit in find_unfit_nodes(findings, assign_probe_peers(nodes, most))
    }


def test_each_node_reaches_as_many_as_it_is_reached_by() -> None:
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
def test_after_what_failures_links_are_doubted(reason: Reason, error_class: str, may_be: bool) -> None:
    failure = (
        RankFailure(0, error_class, "RuntimeError", "reset by peer", "", 3, "backward", 1.0) if error_class else None
    )
    assert may_be_link_failure(Cause(reason, "", 1.0, failure=failure)) is may_be


def test_what_a_node_finds_wrong_with_itself_is_its_fault() -> None:
    findings = [Finding("b", "device", "core 3 lies"), Finding("b", "scratch", "disk full")]
    assert find_unfit_nodes(findings, assign_probe_peers("ab")) == (
        UnfitNode("b", PREFLIGHT, "core 3 lies; disk full", True),
    )
    assert find_unfit_nodes([], assign_probe_peers("ab")) == ()


def test_a_broken_link_speaks_against_both_ends_and_one_is_given_up() -> None:
    ends = {"b": (LINK, True), "a": (LINK, False)}
    assert given_up(links("ab"), "ab") == ends
    assert given_up(links("ab"), "abcd") == ends
    assert given_up(links("ab", "ba"), "ab") == ends, "one of two, not both"


def test_a_node_that_has_no_link_left_is_at_fault_alone() -> None:
    assert given_up(links("ab", "bc"), "abcd") == {"b": (PREFLIGHT, True)}
    assert given_up(links("da", "ab"), "abcd") == {"a": (PREFLIGHT, True)}


def test_whoever_is_unfit_anyway_explains_its_links() -> None:
    findings = [*links("ab", "bc"), Finding("b", "device", "GPU 0 is lost")]
    assert given_up(findings, "abc") == {"b": (PREFLIGHT, True)}


def test_of_a_network_that_is_down_not_every_node_is_called_unfit_for_good() -> None:
    found = given_up(links("ab", "bc", "cd", "da"), "abcd")
    assert set(found) == set("abcd") and all(fault is LINK for fault, _ in found.values())
    assert sum(is_given_up for _, is_given_up in found.values()) == 2


def test_where_all_pairs_are_tried_the_one_with_more_broken_links_is_given_up() -> None:
    assert given_up(links("ab", "ba"), "abc", 32) == {"b": (LINK, True), "a": (LINK, False)}, "either would do"
    assert given_up(links("ac", "ca", "ad", "da"), "abcd", 32) == {
        "a": (LINK, True), "c": (LINK, False), "d": (LINK, False),
    }  # fmt: skip
    assert given_up(links("ab", "ca", "da"), "abcd", 32)["a"] == (LINK, True)


def test_two_that_reach_nobody_are_both_at_fault() -> None:
    pairs = ("ab", "ba", "ac", "ca", "bc", "cb", "db", "bd", "dc", "cd")
    assert given_up(links(*pairs), "abcd", 32) == {"b": (PREFLIGHT, True), "c": (PREFLIGHT, True)}


def test_of_two_halves_that_do_not_reach_each_other_one_is_left() -> None:
    cut = [f"{one}{other}" for one in "ab" for other in "cd"]
    found = given_up(links(*cut, *(pair[::-1] for pair in cut)), "abcd", 32)
    left = {node for node in "abcd" if not found[node][1]}
    assert left in ({"a", "b"}, {"c", "d"}) and {fault for fault, _ in found.values()} == {LINK}
