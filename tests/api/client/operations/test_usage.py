"""The usage report with the Python client, blocking and asynchronous."""

from typing import Any

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from tests.support.inputs.held_devices import allocate, end, reservation, submit


async def test_a_report_is_listed_and_exported(live: Any) -> None:
    for number, user in enumerate(("ana", "bob")):
        job_id = f"j_{number}"
        await submit(live.store, job_id, user, project="vision")
        await allocate(live.store, live.lease, job_id, reservation(job_id, "a", 2), now=1000.0)
        await end(live.store, live.lease, job_id, now=1900.0)

    def use(client: Client) -> str:
        assert [(each.project, each.device_hours) for each in client.usage()] == [("vision", 1.0)]
        assert [each.user for each in client.usage(["user"], from_s=1000.0, to_s=1450.5)] == ["ana", "bob"]
        assert list(client.usage(["user"], project="speech")) == []
        return client.usage_csv(["user", "class"], to_s=1450.0, project="vision")

    text = await live.client(use)
    assert text.splitlines()[1].startswith("ana,H100,0.250000,,,")
    async with AsyncClient(live.url, token=live.token) as client:
        found = [(each.user, each.device_hours) async for each in client.usage(["user"], to_s=1450.0)]
        assert found == [("ana", 0.25), ("bob", 0.25)]
        assert await client.usage_csv(["user", "class"], to_s=1450.0) == text
