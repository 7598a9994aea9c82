"""`regroup gateway` refuses what would expose its cluster. A whole one runs in tests/e2e/cluster."""

from dataclasses import replace
from pathlib import Path

import pytest

from regroup.service.domain.errors import ConflictError, RegroupError, SettingError
from regroup.service.gateway.process import GatewayOptions, run_gateway


@pytest.fixture
def options(tmp_path: Path) -> GatewayOptions:
    token = tmp_path / "token"
    token.write_text("a-token-of-a-gateway-of-tests\n")
    token.chmod(0o600)
    return GatewayOptions("127.0.0.1:1", token)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"host": "0.0.0.0"}, SettingError, "calls carry secrets of jobs: give --tls-cert and --tls-key"),
        ({"tls_cert": Path("x.pem")}, SettingError, "--tls-key: --tls-cert and --tls-key belong together"),
        ({"tls_key": Path("x.pem")}, SettingError, "--tls-cert: --tls-cert and --tls-key belong together"),
        ({"tls_cert": Path("x.pem"), "tls_key": Path("x.pem")}, ConflictError, "x.pem cannot be used|x.pem with the"),
        ({"token_file": Path("/nowhere/token")}, ConflictError, "correct --token-file"),
    ],
)
def test_it_refuses_wrong_flags(
    options: GatewayOptions, change: dict[str, object], error: type[RegroupError], text: str
) -> None:
    with pytest.raises(error, match=text):
        run_gateway(replace(options, **change))  # type: ignore[arg-type]


def test_a_token_that_others_can_read_is_refused(options: GatewayOptions) -> None:
    options.token_file.chmod(0o644)
    with pytest.raises(ConflictError, match="is not private: type `chmod 600"):
        run_gateway(options)
