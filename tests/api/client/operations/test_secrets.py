"""Secrets with the Python clients."""

from typing import Any

import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError

VALUE = "hunter2-4f1d09c6"


async def test_a_secret_lives_through_all_methods(live: Any) -> None:
    def use(client: Client) -> None:
        secret = client.set_secret("vision", "hf-token", VALUE)
        assert (secret.name, secret.version) == ("hf-token", 1) and VALUE not in secret.model_dump_json()
        assert client.secrets("vision") == [secret] == [client.secret("vision", "hf-token")]
        assert client.secrets("speech") == []
        assert client.under(dry_run=True).set_secret("vision", "hf-token", VALUE).version == 2
        assert client.secret("vision", "hf-token").version == 1
        assert client.reencrypt_secrets().encrypted == 0
        client.delete_secret("vision", "hf-token")
        with pytest.raises(ApiError, match="has no secret"):
            client.secret("vision", "hf-token")

    await live.client(use)


async def test_the_asynchronous_client_has_the_same_methods(live: Any) -> None:
    async with AsyncClient(live.url) as client:
        secret = await client.set_secret("vision", "hf-token", VALUE)
        assert await client.secrets("vision") == [secret] == [await client.secret("vision", "hf-token")]
        assert (await client.reencrypt_secrets()).is_complete
        await client.delete_secret("vision", "hf-token")
        assert await client.secrets("vision") == []


async def test_all_batches_are_encrypted(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH_ROWS", "MAX_ROWS"):
        monkeypatch.setattr(f"regroup.service.operations.secrets.{name}", 1)
    for number in range(3):
        await live.http.put(f"/v1/projects/vision/secrets/s{number}", json={"value": VALUE})
    file = live.services.settings.state_dir / "secrets.key"
    file.write_text(f"{'ab' * 32}\n{file.read_text().splitlines()[-1]}\n")
    done = await live.client(lambda client: client.reencrypt_secrets())
    assert (done.encrypted, done.unreadable, done.is_complete) == (3, 0, True)
