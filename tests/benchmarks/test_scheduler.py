"""Tests of the scheduler benchmark's scene and arithmetic."""

import pytest

from benchmarks.scheduler import exponent, measure_cycle, scene


def test_the_scene_has_the_requested_size_and_load() -> None:
    waiting, nodes, running, _ = scene(20, 7, load=0.5)
    assert len(waiting) == 7 and sum(job.demand.ranks for job in running) == 80
    assert sum(int(node.free_gpus) for node in nodes) == 80


def test_a_scheduler_pass_is_measured_and_its_nodes_are_counted() -> None:
    cycle = measure_cycle(20, 10, trials=1)
    assert cycle["s"] > 0 and cycle["nodes"] == 20


def test_the_exponent_is_that_of_the_power_law() -> None:
    assert exponent([(n, 3.0 * n**1.1) for n in (10, 20, 40)]) == pytest.approx(1.1)
