"""A gateway should be restarted only after its cluster has not answered for long."""

from regroup.service.gateway.cluster_health import LOST_AFTER_S, ClusterHealth
from tests.support.doubles.fake_cluster import FakeCluster


async def test_a_short_loss_is_ignored_and_a_long_one_is_reported_with_its_reason() -> None:
    fake, now_s = FakeCluster(), [100.0]
    health = ClusterHealth(fake, lambda: now_s[0])
    fake.reachable = False
    for _ in range(3):
        now_s[0] += LOST_AFTER_S / 3
        await health.poll()
        assert health.problem() == ""
    now_s[0] += 1.0
    assert health.problem() == "the cluster has not answered for 121 s: the cluster does not answer"
    fake.reachable = True
    await health.poll()
    assert health.problem() == ""


async def test_a_call_that_never_returns_is_a_problem_as_well() -> None:
    now_s = [100.0]
    health = ClusterHealth(FakeCluster(), lambda: now_s[0])
    now_s[0] += LOST_AFTER_S + 1
    assert "a call does not return" in health.problem()
