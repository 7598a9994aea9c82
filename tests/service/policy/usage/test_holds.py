"""Devices that jobs held: their device-seconds in a window, and the fewest spans with the same devices."""

import itertools
import random

import pytest

from regroup.service.policy.usage.holds import Hold, hold_of, merge_holds


@pytest.mark.parametrize(
    ("hold", "device_seconds"),
    [
        (Hold("H100", 2, 100.0, 200.0), 200.0),
        (Hold("H100", 2, 50.0, 120.0), 40.0),
        (Hold("H100", 2, 180.0, 900.0), 40.0),
        (Hold("H100", 2, 0.0, 900.0), 200.0),
        (Hold("H100", 2, 150.0), 100.0),
        (Hold("H100", 2, 0.0, 100.0), 0.0),
        (Hold("H100", 2, 200.0, 300.0), 0.0),
        (Hold("H100", 2, 150.0, 140.0), 0.0),
    ],
)
def test_a_hold_counts_only_inside_the_window(hold: Hold, device_seconds: float) -> None:
    assert hold.device_seconds(100.0, 200.0) == device_seconds


def test_reservations_are_merged_into_spans_of_equal_devices() -> None:
    held = [
        Hold("H100", 8, 10.0, 60.0), Hold("H100", 8, 10.0, 60.0), Hold("H100", 4, 60.0, 80.0), Hold("cpu", 1, 10.0),
        Hold("H100", 12, 80.0, 90.0), Hold("A100", 0, 10.0, 90.0), Hold("A100", 2, 50.0, 50.0),
    ]  # fmt: skip
    assert merge_holds(held, until_s=100.0) == [
        Hold("H100", 16, 10.0, 60.0), Hold("H100", 4, 60.0, 80.0), Hold("H100", 12, 80.0, 90.0),
        Hold("cpu", 1, 10.0, 100.0),
    ]  # fmt: skip


def test_a_replacement_at_the_same_moment_continues_the_span() -> None:
    assert merge_holds([Hold("H100", 4, 0.0, 5.0), Hold("H100", 4, 5.0, 9.0)], 10.0) == [Hold("H100", 4, 0.0, 9.0)]


def test_merged_holds_have_the_same_device_seconds_in_every_window() -> None:
    draw = random.Random(1)
    for _ in range(100):
        holds = [
            Hold(draw.choice(("a", "b")), draw.randrange(4), start := float(draw.randrange(20)),
                 draw.choice((None, start + draw.randrange(12))))
            for _ in range(draw.randrange(8))
        ]  # fmt: skip
        merged = merge_holds(holds, 30.0)
        for from_s, to_s in itertools.combinations(range(0, 31, 5), 2):
            for accelerator in ("a", "b"):
                totals = [
                    sum(each.device_seconds(from_s, to_s) for each in some if each.accelerator == accelerator)
                    for some in (holds, merged)
                ]
                assert totals[0] == totals[1], (holds, from_s, to_s)


@pytest.mark.parametrize(
    ("reservation", "requested", "accelerator", "devices"),
    [
        ({"ranks": 2, "device_kind": "cuda", "accelerator": "H100"}, None, "H100", 2),
        ({"ranks": 2, "device_kind": "cuda", "accelerator": ""}, "A100", "A100", 2),
        ({"ranks": 2, "device_kind": "cuda"}, None, "cuda", 2),
        ({"ranks": 3, "device_kind": "cpu", "accelerator": "H100"}, None, "cpu", 3),
        ({"ranks": "many", "device_kind": "cuda"}, None, "cuda", 0),
        ({}, None, "cpu", 0),
    ],
)
def test_a_reservation_names_its_devices(
    reservation: dict[str, object], requested: str | None, accelerator: str, devices: int
) -> None:
    assert hold_of(reservation, requested, 1.0, None) == Hold(accelerator, devices, 1.0, None)
