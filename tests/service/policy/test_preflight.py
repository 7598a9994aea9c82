"""Whose fault is what nodes find before ranks start, above all of a link that has two ends."""

from regroup.service.policy.health import Happening
from regroup.service.policy.preflight import Finding, Unfit, judge, ring


def links(*nodes: str) -> list[Finding]:
    """Each of these nodes does not reach its peer."""
    return [Finding(node, "link", f"{node} is cut") for node in nodes]


def given_up(findings: list[Finding], nodes: str) -> dict[str, tuple[Happening, bool]]:
    return {unfit.node_id: (unfit.fault, unfit.is_given_up) for unfit in judge(findings, ring(nodes))}


def test_each_node_reaches_one_and_is_reached_by_one() -> None:
    assert ring("") == ring("a") == {}
    assert ring("ab") == {"a": "b", "b": "a"} and ring("abc") == {"a": "b", "b": "c", "c": "a"}


def test_what_a_node_finds_wrong_with_itself_is_its_fault() -> None:
    findings = [Finding("b", "device", "core 3 lies"), Finding("b", "scratch", "disk full")]
    assert judge(findings, ring("ab")) == (Unfit("b", Happening.PREFLIGHT, "core 3 lies; disk full", True),)
    assert judge([], ring("ab")) == ()


def test_a_broken_link_speaks_against_both_ends_and_one_is_given_up() -> None:
    ends = {"b": (Happening.LINK, True), "a": (Happening.LINK, False)}
    assert given_up(links("a"), "ab") == ends
    assert given_up(links("a"), "abcd") == ends
    assert given_up(links("a", "b"), "ab") == ends, "one of two, not both"


def test_a_node_that_has_no_link_left_is_at_fault_alone() -> None:
    assert given_up(links("a", "b"), "abcd") == {"b": (Happening.PREFLIGHT, True)}
    assert given_up(links("d", "a"), "abcd") == {"a": (Happening.PREFLIGHT, True)}


def test_whoever_is_unfit_anyway_explains_its_links() -> None:
    findings = [*links("a", "b"), Finding("b", "device", "GPU 0 is lost")]
    assert given_up(findings, "abc") == {"b": (Happening.PREFLIGHT, True)}


def test_of_a_network_that_is_down_not_every_node_is_called_unfit_for_good() -> None:
    found = given_up(links("a", "b", "c", "d"), "abcd")
    assert set(found) == set("abcd") and all(fault is Happening.LINK for fault, _ in found.values())
    assert sum(is_given_up for _, is_given_up in found.values()) == 2
