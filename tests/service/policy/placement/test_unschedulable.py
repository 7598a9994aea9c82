"""The text about lost nodes in the reason why a job waits."""

from regroup.service.policy.placement.unschedulable import describe_lost_nodes


def test_lost_nodes_are_named_with_what_brings_them_back() -> None:
    assert describe_lost_nodes([], is_local=True, restarts=True) == ""
    one = describe_lost_nodes(["local-2"], is_local=True, restarts=True)
    assert one == "; local-2 is lost: the server starts it again"
    two = describe_lost_nodes(["local-1", "local-2"], is_local=True, restarts=False)
    assert two == "; local-1, local-2 are lost: `regroup down` and then `regroup serve` start all nodes again"
    far = describe_lost_nodes(["a"], is_local=False, restarts=True)
    assert far == "; a is lost: start Ray there again (`ray start`), or replace it"
    many = describe_lost_nodes([f"n{number}" for number in range(9)], is_local=False, restarts=True)
    assert many.startswith("; n0, n1, n2, n3 and 5 more are lost")
