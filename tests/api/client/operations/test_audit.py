"""Audit records with the Python client, blocking and asynchronous."""

from typing import Any

from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.service.domain.audit import ChainEnd
from regroup.service.domain.author import Author
from regroup.service.local.api_token import user_name
from regroup.service.store.rows.records import ProjectRow
from regroup.service.store.schema.access_tables import audit

COUNT = 1002
"""One more than two batches of the store, and than one request of the client."""


async def test_records_are_listed_exported_and_verified(live: Any) -> None:
    for limit in range(1, 4):
        await live.http.put("/v1/projects/own", json={"limit": limit})

    def use(client: Client) -> ChainEnd:
        assert [each.after["limit"] for each in client.audit(project="own", actor=user_name())] == [3, 2, 1]
        assert list(client.audit(action="jobs.cancel")) == [] == list(client.audit(until_s=1.0))
        assert len(list(client.audit(object="own", since_s=1.0))) == 3
        assert [each.position for each in client.audit_export(after=1)] == [2, 3]
        report = client.verify_audit()
        assert (report.count, report.fault) == (3, "")
        return report.end

    await live.store.audit.seal()
    end = await live.client(use)
    async with AsyncClient(live.url, token=live.token) as client:
        assert [each.after["limit"] async for each in client.audit(project="own")] == [3, 2, 1]
        assert (await client.verify_audit(end)).fault == ""
        assert (await client.audit_chain()).end.digest == end.digest
    async with live.store._database.write() as connection:
        await connection.execute(audit.update().where(audit.c.position == 2).values(actor="bob"))
    report = await live.client(lambda client: client.verify_audit(end))
    assert (report.count, report.fault) == (1, "record 2 was changed: its digest does not match its content")


async def test_an_export_of_several_requests_is_whole(live: Any) -> None:
    for limit in range(COUNT):
        row = ProjectRow("own", limit=limit)
        await live.store.queue.put_project(row, now=float(limit), author=Author("ana", "t1", "::1"))
    while await live.store.audit.seal():
        pass
    found = await live.client(lambda client: [each.position for each in client.audit_export()])
    assert found == list(range(1, COUNT + 1))
    assert (await live.client(lambda client: client.verify_audit())).count == COUNT
