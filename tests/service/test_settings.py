import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from regroup.service.local.api_token import TOKEN_NAME
from regroup.service.settings import Settings
from tests.support.checks.schema_bounds import unbounded


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("REGROUP_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_is_served(host: str) -> None:
    assert Settings(host=host).host == host


TLS: dict[str, Any] = {"tls_cert": "chain.pem", "tls_key": "key.pem"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_another_address_is_refused_with_a_remedy(host: str) -> None:
    with pytest.raises(ValidationError, match=r"without encryption.*--tls-cert.*--behind-proxy.*SSH tunnel"):
        Settings(host=host)
    for safe in (TLS, {"behind_proxy": True}):
        with pytest.raises(ValidationError, match="--public-host"):
            Settings(host=host, **safe)
        settings = Settings(host=host, public_hosts=("Train.Example.org",), **safe)
        assert settings.public_hosts == ("train.example.org",)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tls_cert": "chain.pem"}, "belong together"),
        ({"tls_key": "key.pem"}, "belong together"),
        ({**TLS, "behind_proxy": True}, "the proxy has TLS"),
        ({"unix_socket": "/run/s", **TLS}, "replaces host"),
        ({"unix_socket": "/run/s", "host": "::1"}, "replaces host"),
        ({"public_hosts": ("https://a",)}, "without scheme and port"),
        ({"public_hosts": ("a:1",)}, "without scheme and port"),
        ({"proxy_addresses": ("proxy",)}, "networks such as 10.0.0.0/8"),
        ({"hook_private_networks": ("10.0.0.1/8",)}, "networks such as 10.0.0.0/8"),
        ({"smtp_host": "mail"}, "smtp_host needs smtp_sender"),
        ({"smtp_sender": "regroup\r\nBcc: x@evil.example"}, "smtp_sender"),
        ({"smtp_user": "regroup"}, "belong together"),
        ({"smtp_password_file": "password"}, "belong together"),
        (
            {
                "smtp_host": "mail",
                "smtp_sender": "a@b.c",
                "smtp_user": "u",
                "smtp_password_file": "p",
                "smtp_tls": "off",
            },
            "would carry the password",
        ),
        ({"gateway_url": "https://gateway:8600"}, "gateway_url needs gateway_token_file"),
        ({"gateway_token_file": "t"}, "has no effect without gateway_url"),
        ({"gateway_ca_file": "t"}, "has no effect without gateway_url"),
        ({"gateway_url": "https://g", "ray_address": "h:1"}, "names a cluster, too: give one of them"),
        ({"gateway_url": "http://g", "gateway_token_file": "t"}, "must begin with https://"),
        ({"oidc_issuer": "https://issuer"}, "belong together"),
        ({"oidc_audience": "regroup"}, "belong together"),
        ({"oidc_issuer": "http://issuer", "oidc_audience": "regroup"}, "must begin with https://"),
    ],
)
def test_contradictions_about_access_are_named(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Settings(**fields)


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_PUBLIC_HOSTS", "a.example, b.example,")
    monkeypatch.setenv("REGROUP_PROXY_ADDRESSES", "10.0.0.0/8,::1")
    settings = Settings()
    assert settings.public_hosts == ("a.example", "b.example")
    assert settings.proxy_addresses == ("10.0.0.0/8", "::1")


def test_all_files_are_in_the_state_directory_by_default(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "s")
    assert settings.database_url == f"sqlite:///{tmp_path}/s/regroup.db"
    assert settings.storage_uri == f"file://{tmp_path}/s/storage"
    assert settings.token_path == tmp_path / "s" / TOKEN_NAME
    assert Settings(storage_uri="s3://b/p").storage_uri == "s3://b/p"


def test_a_flag_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_GANG_TIMEOUT_S", "7")
    monkeypatch.setenv("REGROUP_PORT", "9000")
    settings = Settings(port=9001)
    assert (settings.gang_timeout_s, settings.port) == (7, 9001)


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert Settings().state_dir == Path("/home/ann/.regroup")


def test_every_number_has_bounds() -> None:
    assert [place for place in unbounded(Settings.model_json_schema()) if place.endswith("a number")] == []


@pytest.mark.parametrize(
    "field",
    [
        {"port_range": "20000"}, {"port_range": "30000-20000"}, {"port_range": "0-99"}, {"port_range": "1-65536"},
        {"local_nodes": -1}, {"gang_timeout_s": 0}, {"prot": 1}, {"lease_s": "inf"}, {"quarantine_s": "nan"},
        {"job_retention_s": 1e300}, {"upload_limit_bytes": 10**309}, {"slots_per_node": 10**9},
    ],
)  # fmt: skip
def test_an_invalid_setting_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings(**field)  # pyright: ignore[reportArgumentType]


def test_the_server_starts_ray_only_without_another_cluster() -> None:
    assert Settings().has_local_ray
    assert not Settings(ray_address="head:6379").has_local_ray
    remote = Settings(gateway_url="https://gateway:8600", gateway_token_file=Path("token"))
    assert not remote.has_local_ray and remote.gateway_token_file == Path.cwd() / "token"
