import pytest

from regroup.api.client.connection.address import server_url
from regroup.service.domain.errors import SpecError


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://127.0.0.1:8500", "http://127.0.0.1:8500"),
        ("https://train.example/", "https://train.example"),
        ("127.0.0.1:8510", "http://127.0.0.1:8510"),
        ("head", "http://head:8500"),
        (" [::1]:9 ", "http://[::1]:9"),
        ("unix:/run/api.sock", "unix:/run/api.sock"),
        ("unix:///run/api.sock", "unix:/run/api.sock"),
    ],
)
def test_the_scheme_and_the_port_are_completed(typed: str, url: str) -> None:
    assert server_url(typed) == url


@pytest.mark.parametrize(
    "typed", ["", "unix:", "ftp://host", "http://", "host:port", "host:99999", "a b", "http://[::1"]
)
def test_another_text_is_refused_with_the_accepted_forms(typed: str) -> None:
    with pytest.raises(SpecError, match="use HOST:PORT or http://HOST:PORT"):
        server_url(typed)
