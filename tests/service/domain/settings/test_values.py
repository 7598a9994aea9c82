"""Values of settings that are refused, with what the operator should write."""

from collections.abc import Callable

import pytest

from regroup.service.domain.settings.values import (
    check_host_names,
    check_networks,
    check_port_range,
    find_gateway_problem,
)


@pytest.mark.parametrize(
    "url", ["https://gateway:8600", "https://10.0.0.1", "https://[::1]:1/", "http://127.0.0.1:8600", "http://localhost"]
)
def test_urls_of_gateways(url: str) -> None:
    assert find_gateway_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("gateway:8600", "must be https://HOST:PORT"),
        ("https://", "must be https://HOST:PORT"),
        ("https://gateway:port", "must be https://HOST:PORT"),
        ("https://gateway:99999", "must be https://HOST:PORT"),
        ("https://[::1", "must be https://HOST:PORT"),
        ("https://gateway/path", "must be https://HOST:PORT"),
        ("https://gateway?x=1", "must be https://HOST:PORT"),
        ("ftp://gateway", "must be https://HOST:PORT"),
        ("http://gateway:8600", "calls carry secrets of jobs"),
        ("http://10.0.0.1", "calls carry secrets of jobs"),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, text: str) -> None:
    assert text in find_gateway_problem(url)


@pytest.mark.parametrize(
    ("check", "good", "wrong", "text"),
    [
        (check_host_names, ["a.example.org", "x"], ["https://a"], "give names without scheme and port"),
        (check_networks, ["10.0.0.0/8", "::1"], ["10.0.0.1/8"], "such as 10.0.0.0/8"),
        (check_port_range, "1-65535", "0-10", "is not a range of ports"),
        (check_port_range, "5-5", "6-5", "is not a range of ports"),
    ],
)
def test_wrong_values_are_named(check: Callable[..., None], good: object, wrong: object, text: str) -> None:
    check("setting", good)
    with pytest.raises(ValueError, match=text):
        check("setting", wrong)
