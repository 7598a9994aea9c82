"""Identities, members and tokens with the Python client."""

from typing import Any

import pytest

from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError


async def test_an_identity_lives_through_all_methods(live: Any) -> None:
    def use(client: Client) -> None:
        assert client.me().is_operator
        account = client.create_identity("ci", kind="service_account", project="vision", role="editor")
        assert (account.kind, account.project) == ("service_account", "vision")
        assert [each.subject for each in client.members("vision")] == ["ci"]
        assert client.set_member("vision", "ci", "viewer", permissions=["logs"]).permissions == ["logs"]
        issued = client.create_token("pipeline", subject="ci", expires_in_s="1h")
        with Client(client.url, token=issued.value) as pipeline:
            assert pipeline.me().memberships[0].project == "vision"
            assert list(pipeline.jobs()) == []
            assert client.change_identity("ci", disabled=True).disabled_at is not None
            with pytest.raises(ApiError, match="is disabled"):
                pipeline.me()
        assert [each.id for each in client.tokens(subject="ci")] == [issued.id]
        assert client.revoke_token(issued.id).revoked_at is not None
        client.remove_member("vision", "ci")
        assert client.members("vision") == [] and client.identity("ci").disabled_at is not None
        client.delete_identity("ci")
        assert client.identities() == []

    await live.client(use)
