"""Devices that jobs held over time: their device-seconds in a window, and the fewest spans that are equal."""

import itertools
import random

import pytest

from regroup.service.policy.usage.device_spans import DeviceSpan, merge_spans, span_of


@pytest.mark.parametrize(
    ("span", "device_seconds"),
    [
        (DeviceSpan("H100", 2, 100.0, 200.0), 200.0),
        (DeviceSpan("H100", 2, 50.0, 120.0), 40.0),
        (DeviceSpan("H100", 2, 180.0, 900.0), 40.0),
        (DeviceSpan("H100", 2, 0.0, 900.0), 200.0),
        (DeviceSpan("H100", 2, 150.0), 100.0),
        (DeviceSpan("H100", 2, 0.0, 100.0), 0.0),
        (DeviceSpan("H100", 2, 200.0, 300.0), 0.0),
        (DeviceSpan("H100", 2, 150.0, 140.0), 0.0),
    ],
)
def test_a_span_counts_only_inside_the_window(span: DeviceSpan, device_seconds: float) -> None:
    assert span.device_seconds(100.0, 200.0) == device_seconds


def test_reservations_are_merged_into_spans_of_equal_devices() -> None:
    held = [
        DeviceSpan("H100", 8, 10.0, 60.0),
        DeviceSpan("H100", 8, 10.0, 60.0),
        DeviceSpan("H100", 4, 60.0, 80.0),
        DeviceSpan("cpu", 1, 10.0),
        DeviceSpan("H100", 12, 80.0, 90.0),
        DeviceSpan("A100", 0, 10.0, 90.0),
        DeviceSpan("A100", 2, 50.0, 50.0),
    ]
    assert merge_spans(held, until_s=100.0) == [
        DeviceSpan("H100", 16, 10.0, 60.0),
        DeviceSpan("H100", 4, 60.0, 80.0),
        DeviceSpan("H100", 12, 80.0, 90.0),
        DeviceSpan("cpu", 1, 10.0, 100.0),
    ]


def test_a_replacement_at_the_same_moment_continues_the_span() -> None:
    assert merge_spans([DeviceSpan("H100", 4, 0.0, 5.0), DeviceSpan("H100", 4, 5.0, 9.0)], 10.0) == [
        DeviceSpan("H100", 4, 0.0, 9.0)
    ]


def test_merged_spans_have_the_same_device_seconds_in_every_window() -> None:
    draw = random.Random(1)
    for _ in range(100):
        spans = [
            DeviceSpan(draw.choice(("a", "b")), draw.randrange(4), start := float(draw.randrange(20)),
                 draw.choice((None, start + draw.randrange(12))))
            for _ in range(draw.randrange(8))
        ]  # fmt: skip
        merged = merge_spans(spans, 30.0)
        for from_s, to_s in itertools.combinations(range(0, 31, 5), 2):
            for accelerator in ("a", "b"):
                totals = [
                    sum(each.device_seconds(from_s, to_s) for each in some if each.accelerator == accelerator)
                    for some in (spans, merged)
                ]
                assert totals[0] == totals[1], (spans, from_s, to_s)


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
    assert span_of(reservation, requested, 1.0, None) == DeviceSpan(accelerator, devices, 1.0, None)
