"""The effective settings over HTTP: sources, secrets, both clients; the permission is in test_permissions.py."""

from pathlib import Path
from typing import Any

import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.service.operations.reports.server_settings import effective_settings
from regroup.service.settings import Settings


async def test_operators_see_each_setting_with_its_meaning(live: Any) -> None:
    found = (await live.http.get("/v1/settings")).json()["settings"]
    assert [each["name"] for each in found] == list(Settings.model_fields)
    assert [each["name"] for each in found if not each["description"]] == []
    by_name = {each["name"]: each for each in found}
    assert by_name["state_dir"]["source"] == "flag" and by_name["port"]["source"] == "default"
    assert by_name["state_dir"]["value"] == str(live.services.settings.state_dir)
    assert (by_name["port"]["variable"], by_name["port"]["value"]) == ("REGROUP_PORT", 8500)
    assert by_name["database_url"]["value"].startswith("sqlite:///")


async def test_both_clients_list_them(live: Any) -> None:
    found = await live.client(lambda client: client.server_settings())
    async with AsyncClient(live.url, token=live.token) as client:
        assert await client.server_settings() == found and len(found) == len(Settings.model_fields)


def test_the_source_of_a_value_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_PORT", "9000")
    monkeypatch.setenv("REGROUP_HEADER_TIMEOUT_S", "7")
    monkeypatch.setenv("REGROUP_PUBLIC_HOSTS", "a.example,b.example")
    found = {each.name: each for each in effective_settings(Settings(state_dir=tmp_path, port=9100))}
    assert (found["port"].value, found["port"].source) == (9100, "flag")
    assert (found["header_timeout_s"].value, found["header_timeout_s"].source) == (7.0, "environment")
    assert (found["public_hosts"].value, found["public_hosts"].source) == (["a.example", "b.example"], "environment")
    assert found["storage_uri"].source == "default" and found["storage_uri"].value.startswith("file://")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://ana:p@ss@db:5432/regroup", "postgresql://ana:***@db:5432/regroup"),
        ("postgresql://ana@db/regroup", "postgresql://ana@db/regroup"),
        ("postgresql://db/regroup?user=ana&password=p&sslmode=require", "postgresql://db/regroup?user=ana&password=***&sslmode=require"),
    ],
)  # fmt: skip
def test_no_secret_is_shown(tmp_path: Path, given: str, shown: str) -> None:
    keys = "k1:" + "A" * 43 + "="
    found = {
        each.name: each
        for each in effective_settings(Settings(state_dir=tmp_path, database_url=given, secrets_key=keys))
    }
    assert found["database_url"].value == shown
    assert (found["secrets_key"].value, found["secrets_key"].is_secret) == (None, True)
    assert [each.name for each in found.values() if each.is_secret] == ["secrets_key"]
