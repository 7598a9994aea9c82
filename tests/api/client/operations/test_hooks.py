"""Hooks with the Python clients, and a real receiver."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.api.client.connection.errors import ApiError
from regroup.service.operations.hooks.delivery import HookDelivery
from tests.support.servers.hook_receiver import HookReceiver, running_receiver


@pytest.fixture
async def receiver(live: Any) -> AsyncIterator[HookReceiver]:
    """A receiver, and the delivery task of the server."""
    object.__setattr__(live.services.settings, "hook_private_networks", ("127.0.0.0/8",))
    keys = live.services.keys
    work = HookDelivery(live.store, live.services.settings, lambda: live.lease, interval_s=0.02, keys=keys)
    task = asyncio.create_task(work.run())
    async with running_receiver() as running:
        yield running
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_hook_lives_through_all_methods(live: Any, receiver: HookReceiver) -> None:
    def use(client: Client) -> str:
        hook = client.create_hook("vision", "ci", url=receiver.url(), events=["held"], labels={"team": "nlp"})
        assert (hook.events, hook.labels) == (["held"], {"team": "nlp"})
        assert [each.id for each in client.hooks("vision")] == [hook.id] and client.hooks("speech") == []
        assert client.change_hook("vision", hook.id, name="pipeline").name == "pipeline"
        assert client.hook("vision", hook.id).name == "pipeline"
        tested = client.test_hook("vision", hook.id)
        assert client.wait_for_delivery("vision", hook.id, tested.id, timeout_s=20).state == "delivered"
        again = client.redeliver("vision", hook.id, tested.id)
        assert client.wait_for_delivery("vision", hook.id, again.id, timeout_s=20).status_code == 204
        assert [each.id for each in client.deliveries("vision", hook.id)] == [again.id, tested.id]
        assert list(client.deliveries("vision", hook.id, state="failed")) == []
        assert client.delivery("vision", hook.id, again.id).redelivery_of == tested.id
        rotated = client.rotate_hook("vision", hook.id)
        assert rotated.secret not in (None, hook.secret)
        client.delete_hook("vision", hook.id)
        assert client.hooks("vision") == []
        return str(hook.secret)

    secret = await live.client(use)
    first, second = receiver.received
    assert first.is_signed_with(secret) and first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_the_asynchronous_client_gets_the_events_of_a_job(live: Any, receiver: HookReceiver) -> None:
    async with AsyncClient(live.url) as client:
        hook = await client.create_hook("default", "ci", url=receiver.url(), events=["state:CANCELLED"])
        job = await live.submit()
        await client.cancel(job["id"])
        (received,) = await receiver.wait_for(1)
        assert received.is_signed_with(str(hook.secret))
        assert received.json["data"]["event"]["to"] == "CANCELLED"
        (delivery,) = [each async for each in client.deliveries("default", hook.id)]
        done = await client.wait_for_delivery("default", hook.id, delivery.id, timeout_s=20)
        assert (done.state, done.job_id) == ("delivered", job["id"])
        await client.delete_hook("default", hook.id)


async def test_a_hook_named_by_dots_is_not_the_object_above_it(live: Any) -> None:
    await live.http.put("/v1/projects/vision", json={"limit": 8})
    for name in ("..", "."):
        with pytest.raises(ApiError, match="no hook"):
            await live.client(lambda client, name=name: client.delete_hook("vision", name))
    assert (await live.http.get("/v1/projects/vision")).json()["limit"] == 8
