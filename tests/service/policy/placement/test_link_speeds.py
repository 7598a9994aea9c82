"""Tables of link speeds."""

from itertools import pairwise

import pytest

from regroup.service.domain.topology import Level
from regroup.service.policy.placement.link_speeds import CPU_LINKS, GPU_LINKS, links_for

OUTWARD = (Level.DEVICE, Level.NODE, Level.GPU_DOMAIN, Level.RACK, Level.BLOCK, Level.ZONE)


def test_each_device_type_has_its_own_table() -> None:
    assert links_for("cuda") is GPU_LINKS
    assert links_for("cpu") is CPU_LINKS


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_link_is_never_faster_than_one_further_inside(device: str) -> None:
    links = links_for(device)
    assert set(links) == set(OUTWARD)
    for inner, outer in pairwise(OUTWARD):
        assert links[inner].bytes_per_s >= links[outer].bytes_per_s
        assert links[inner].latency_s <= links[outer].latency_s
    assert links[Level.DEVICE].bytes_per_s > links[Level.ZONE].bytes_per_s > 0


def test_a_gpu_port_carries_nine_tenths_of_400_gigabits_and_nvlink_what_was_measured() -> None:
    assert GPU_LINKS[Level.GPU_DOMAIN].bytes_per_s == 0.9 * 400e9 / 8
    assert GPU_LINKS[Level.DEVICE].bytes_per_s == 370e9
    assert GPU_LINKS[Level.BLOCK].bytes_per_s * 7 == pytest.approx(GPU_LINKS[Level.RACK].bytes_per_s)
