"""A server that other machines reach has encryption and names. A setting that contradicts that is named."""

from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.settings.exposure import Exposure, find_exposure_problem

LOCAL = Exposure("127.0.0.1", has_cert=False, has_key=False, behind_proxy=False, has_socket=False, public_hosts=())
TLS: dict[str, Any] = {"has_cert": True, "has_key": True}
PUBLIC: dict[str, Any] = {"host": "0.0.0.0", "public_hosts": ("regroup.example.com",)}


@pytest.mark.parametrize(
    "changes",
    [{}, TLS, {"behind_proxy": True}, {"has_socket": True}, {**PUBLIC, **TLS}, {**PUBLIC, "behind_proxy": True}],
)
def test_settings_that_fit(changes: dict[str, Any]) -> None:
    assert find_exposure_problem(replace(LOCAL, **changes)) is None


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        ({"has_cert": True}, "tls_key", "belong together"),
        ({"has_key": True}, "tls_cert", "belong together"),
        ({**TLS, "behind_proxy": True}, "behind_proxy", "has no effect"),
        ({**TLS, "has_socket": True}, "unix_socket", "replaces host"),
        ({"has_socket": True, "host": "localhost"}, "unix_socket", "replaces host"),
        (PUBLIC, "host", "without encryption"),
        ({**PUBLIC, **TLS, "public_hosts": ()}, "host", "--public-host"),
        ({**PUBLIC, "behind_proxy": True, "public_hosts": ()}, "host", "--public-host"),
    ],
)
def test_the_wrong_setting_is_named(changes: dict[str, Any], name: str, text: str) -> None:
    problem = find_exposure_problem(replace(LOCAL, **changes))
    assert problem is not None and problem[0] == name and text in problem[1]
