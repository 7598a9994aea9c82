import math

import pytest

from benchmarks.placement.placement_optimum import gaps
from benchmarks.placement.placement_quality import run, trace
from benchmarks.placement.placement_scale import cluster, exponent


def test_placements_on_small_clusters_are_close_to_the_optimum() -> None:
    found = gaps(15, seed=5)
    assert sum(found) / len(found) <= 0.05 and max(found) <= 0.25 and min(found) >= 0


def test_communicating_ranks_are_closer_to_each_other_than_with_pack() -> None:
    jobs = trace()[:420]
    ours, theirs = run("regroup", jobs), run("pack", jobs)
    many = [job.number for job in jobs if job.number in ours.communication_s and job.demand.ranks >= 16]
    assert len(many) > 10
    assert sum(theirs.communication_s[job] for job in many) > 2 * sum(ours.communication_s[job] for job in many)


def test_the_growth_exponent_is_the_slope_of_the_logarithms() -> None:
    assert exponent([10, 100, 1000], [3.0, 6.0, 12.0]) == pytest.approx(math.log10(2))
    assert len(cluster(40)) == 40 and sum(node.free_gpus for node in cluster(10)) == 8 * 8 + 5
