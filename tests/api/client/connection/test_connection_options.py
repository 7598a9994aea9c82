"""Options of a connection: addresses, sockets, and certificates only where TLS needs them."""

import ssl
from pathlib import Path

import pytest

from regroup.api.client.connection.connection_options import connection_options
from regroup.service.domain.errors import ForbiddenError


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "unix:///run/regroup.sock"])
def test_a_connection_without_tls_loads_no_certificates(url: str) -> None:
    options = connection_options(url, None)
    assert isinstance(options.verify, ssl.SSLContext)
    assert options.verify.get_ca_certs() == [] and options.verify.verify_mode is ssl.CERT_REQUIRED
    assert (options.socket is None) == url.startswith("http")


def test_a_connection_with_tls_trusts_the_system_or_a_file(tmp_path: Path) -> None:
    assert connection_options("https://regroup.example.com", None).verify is True
    with pytest.raises(ForbiddenError, match="cannot be read"):
        connection_options("https://regroup.example.com", tmp_path / "none.pem")
