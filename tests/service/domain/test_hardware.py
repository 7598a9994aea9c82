"""The table of devices: peaks by precision, names and links."""

import pytest

from regroup.service.domain.hardware import DEVICES, LINKS, find_device, peak_flops


def test_half_precisions_share_a_peak_except_on_older_devices() -> None:
    both = peak_flops("bf16")
    assert both.items() <= peak_flops("fp16").items()
    assert peak_flops("fp16").keys() - both.keys() == {"V100"}, "the V100 does not support bf16"
    assert peak_flops("bf16")["H200"] == 989.4e12
    assert "L4" not in peak_flops("fp64")


def test_a_longer_name_precedes_the_shorter_name_that_it_contains() -> None:
    names = list(peak_flops("bf16"))
    for number, name in enumerate(names):
        assert not any(name != later and name in later for later in names[number + 1 :]), name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("h100_80gb", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("DGX-GB300", "GB300"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("cpu", "cpu"),
    ],
)
def test_a_device_is_found_by_its_common_names(text: str, name: str) -> None:
    device = find_device(text)
    assert device is not None
    assert device.name == name


def test_an_unknown_device_is_none() -> None:
    assert find_device("Abacus 3000") is None


def test_every_row_names_its_source_and_a_link_that_exists() -> None:
    for device in DEVICES:
        assert device.source
        assert device.ceiling_source
        assert device.link in LINKS
        assert 0 < device.ceiling < 1
    assert all(link.source for link in LINKS.values())


def test_bandwidth_is_from_the_largest_listed_group_that_is_not_larger() -> None:
    assert LINKS["nvlink2"].bandwidth_of(2) == 22.5e9
    assert LINKS["nvlink2"].bandwidth_of(16) == 134.5e9
    assert LINKS["nvlink5"].bandwidth_of(3) == LINKS["nvlink5"].bandwidth_bytes_s


def test_a_precision_that_a_device_lacks_is_refused_by_name() -> None:
    device = find_device("A100")
    assert device is not None
    with pytest.raises(KeyError, match="A100 does not support fp8"):
        device.flops("fp8")
