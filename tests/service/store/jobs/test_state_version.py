"""The version of the state: each change has another one."""

from collections.abc import Awaitable, Callable
from typing import Any

from regroup.service.domain.author import Author
from regroup.service.policy.detection.node_quarantine import NodeEvent, NodeEventKind
from regroup.service.store.rows.records import Condition, Lease, ProjectRow
from regroup.service.store.store import Store


async def test_each_change_has_another_version(store: Store, lease: Lease, queue: Any) -> None:
    first = await store.queue.version()
    assert await store.queue.version() == first
    job = await queue("one")
    loss = NodeEvent("n1", NodeEventKind.NODE_LOST, 1.0, "k", job, "", "lost")
    condition = Condition("Placeable", False, "resources", "2 of 4 ranks fit", 0.0)
    changes: dict[str, Callable[[], Awaitable[Any]]] = {
        "a condition": lambda: store.set_conditions(lease, job, [condition], now=1.0),
        "a quota": lambda: store.queue.put_project(ProjectRow("vision", limit=8)),
        "a node": lambda: store.nodes.record_faults(lease, [loss], forget_before_s=0.0),
        "another job": lambda: queue("two"),
        "an end": lambda: store.cancel(job, now=2.0, author=Author("ana")),
    }
    seen = {first, await store.queue.version()}
    for name, change in changes.items():
        await change()
        version = await store.queue.version()
        assert version not in seen, name
        seen.add(version)
