"""Peaks of devices are found by precision."""

from regroup.service.hardware import peak_flops


def test_half_precisions_have_one_peak_and_truth_has_its_own() -> None:
    assert peak_flops("fp16") == peak_flops("bf16")
    assert peak_flops("bf16")["H200"] == 989.4e12
    assert "L4" not in peak_flops("fp64")


def test_a_longer_name_is_looked_for_before_the_shorter_one_in_it() -> None:
    names = list(peak_flops("bf16"))
    for number, name in enumerate(names):
        assert not any(name != later and name in later for later in names[number + 1 :]), name
