"""Deliveries: claims, results, redelivery and retention, on SQLite and on a real PostgreSQL."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.domain.author import Author
from regroup.service.domain.errors import ConflictError, NotFoundError, PreconditionError
from regroup.service.domain.hooks import DeliveryState, HookEvent
from regroup.service.policy.hooks.retries import Attempt, Verdict, attempt_of_status
from regroup.service.store.hooks.deliveries import BATCH_ROWS, CLAIM_S, ClaimedDelivery
from regroup.service.store.rows.records import Lease
from regroup.service.store.store import Store

NOW = 1000.0
ANA = Author("ana", "t1", "10.0.0.1")
DELIVERED, FAILED = Verdict(DeliveryState.DELIVERED), Verdict(DeliveryState.FAILED)


async def add_message(store: Store, number: int, hook_id: str = "hook_1") -> Any:
    event = HookEvent(f"m{number}", "test", "default", 1.0, "ana", {"number": number})
    return await store.hooks.deliveries.request("default", hook_id, event, now=NOW, author=ANA)


async def claim(store: Store, lease: Lease, now: float = NOW, **options: Any) -> list[ClaimedDelivery]:
    usual: dict[str, Any] = {"busy": {}, "per_hook": 4, "limit": 16}
    return await store.hooks.deliveries.claim(lease, now=now, **{**usual, **options})


async def finish(store: Store, claimed: ClaimedDelivery, attempt: Attempt, verdict: Verdict, now: float = NOW) -> None:
    await store.hooks.deliveries.finish(claimed, attempt, verdict, 0.25, now=now)


async def test_a_delivery_is_claimed_once_attempted_and_finished(store: Store, lease: Lease, hook: Any, waiting: Any):
    row = await hook()
    await add_message(store, 1)
    (claimed,) = await claim(store, lease)
    assert (claimed.hook, claimed.delivery.attempts, claimed.delivery.message_id) == (row, 1, "m1")
    assert await claim(store, lease) == []
    await finish(store, claimed, attempt_of_status(204), DELIVERED, NOW + 1)
    (stored,) = await waiting()
    assert (stored.state, stored.status_code, stored.duration_s) == (DeliveryState.DELIVERED, 204, 0.25)
    assert (stored.attempted_at, stored.finished_at, stored.error) == (NOW, NOW + 1, "")
    assert await claim(store, lease, NOW + 1e6) == []


async def test_a_failed_attempt_is_repeated_after_its_delay(store: Store, lease: Lease, hook: Any, waiting: Any):
    await hook()
    await add_message(store, 1)
    (claimed,) = await claim(store, lease)
    await finish(store, claimed, attempt_of_status(503), Verdict(DeliveryState.PENDING, 30.0))
    assert await claim(store, lease, NOW + 29) == []
    (again,) = await claim(store, lease, NOW + 30)
    assert (again.delivery.attempts, again.delivery.message_id) == (2, "m1")
    (stored,) = await waiting()
    assert stored.error == "the receiver answered 503" and stored.finished_at is None


async def test_an_attempt_that_a_crash_interrupts_is_repeated(store: Store, lease: Lease, hook: Any, waiting: Any):
    await hook()
    await add_message(store, 1)
    (lost,) = await claim(store, lease)
    assert await claim(store, lease, NOW + CLAIM_S - 1) == []
    (again,) = await claim(store, lease, NOW + CLAIM_S)
    await finish(store, lost, attempt_of_status(500), FAILED)  # a late result of the interrupted attempt
    assert [row.state for row in await waiting()] == [DeliveryState.PENDING]
    await finish(store, again, attempt_of_status(200), DELIVERED)
    assert [row.state for row in await waiting()] == [DeliveryState.DELIVERED]


async def test_only_the_leader_claims(store: Store, lease: Lease, hook: Any):
    await hook()
    await add_message(store, 1)
    with pytest.raises(PreconditionError):
        await claim(store, replace(lease, token=lease.token - 1))
    assert len(await claim(store, lease)) == 1


async def test_a_busy_hook_does_not_delay_others(store: Store, lease: Lease, hook: Any):
    for hook_id in ("slow", "fast"):
        await hook(hook_id)
        for number in range(10):
            await add_message(store, number, hook_id)
    first = await claim(store, lease, per_hook=4, limit=16)
    assert sorted(each.hook.id for each in first) == ["fast"] * 4 + ["slow"] * 4
    assert await claim(store, lease, busy={"slow": 4, "fast": 4}) == []
    assert {each.hook.id for each in await claim(store, lease, busy={"slow": 4}, limit=2)} == {"fast"}
    assert [each.hook.id for each in await claim(store, lease, busy={"slow": 3, "fast": 2}, limit=1)] == ["fast"]
    numbers = [each.delivery.event.data["number"] for each in first if each.hook.id == "slow"]
    assert numbers == [0, 1, 2, 3], "the oldest first"


async def test_concurrent_claims_share_no_delivery(store: Store, lease: Lease, hook: Any):
    await hook()
    for number in range(12):
        await add_message(store, number)
    found = await asyncio.gather(*(claim(store, lease, per_hook=3, limit=3) for _ in range(4)))
    ids = [each.delivery.id for some in found for each in some]
    assert len(ids) == len(set(ids)) and len(ids) >= 3


async def test_a_disabled_hook_keeps_its_deliveries(store: Store, lease: Lease, hook: Any):
    await hook()
    await add_message(store, 1)
    await store.hooks.change("default", "hook_1", "hooks.change", now=2.0, is_enabled=False)
    assert await claim(store, lease) == []
    with pytest.raises(ConflictError, match="is disabled"):
        await add_message(store, 2)
    await store.hooks.change("default", "hook_1", "hooks.change", now=3.0, is_enabled=True)
    assert len(await claim(store, lease)) == 1


async def test_a_receiver_that_wants_no_more_disables_its_hook(store: Store, lease: Lease, hook: Any, waiting: Any):
    await hook()
    await add_message(store, 1)
    (claimed,) = await claim(store, lease)
    await finish(store, claimed, attempt_of_status(410), replace(FAILED, disables_hook=True))
    assert not (await store.hooks.hook("default", "hook_1")).is_enabled
    assert [row.state for row in await waiting()] == [DeliveryState.FAILED]


async def test_a_redelivery_repeats_the_message_and_keeps_the_log(store: Store, lease: Lease, hook: Any, waiting: Any):
    await hook()
    first = await add_message(store, 1)
    (claimed,) = await claim(store, lease)
    await finish(store, claimed, attempt_of_status(500), FAILED)
    again = await store.hooks.deliveries.repeat("default", "hook_1", first.id, now=NOW, author=ANA)
    assert (again.message_id, again.redelivery_of, again.attempts) == ("m1", first.id, 0)
    assert [(row.id, row.state) for row in await waiting()] == [
        (first.id, DeliveryState.FAILED), (again.id, DeliveryState.PENDING),
    ]  # fmt: skip
    assert [each.delivery.id for each in await claim(store, lease)] == [again.id]


async def test_deliveries_of_other_hooks_and_projects_do_not_exist(store: Store, hook: Any):
    await hook("mine")
    await hook("other")
    row = await add_message(store, 1, "mine")
    read = store.hooks.deliveries
    assert (await read.delivery("default", "mine", row.id)).id == row.id
    for project, hook_id, delivery in (
        ("default", "other", row.id),
        ("vision", "mine", row.id),
        ("default", "mine", 99),
    ):
        with pytest.raises(NotFoundError):
            await read.delivery(project, hook_id, delivery)
        with pytest.raises(NotFoundError):
            await read.repeat(project, hook_id, delivery, now=NOW)
    with pytest.raises(NotFoundError):
        await read.page("vision", "mine", None, None, 10)


async def test_pages_of_the_log_are_filtered_by_state(store: Store, lease: Lease, hook: Any):
    await hook()
    for number in range(5):
        await add_message(store, number)
    for claimed in await claim(store, lease, per_hook=2):
        await finish(store, claimed, attempt_of_status(200), DELIVERED)
    read = store.hooks.deliveries
    newest = await read.page("default", "hook_1", None, None, 2)
    older = await read.page("default", "hook_1", None, newest[-1].id, 9)
    assert [row.message_id for row in (*newest, *older)] == ["m4", "m3", "m2", "m1", "m0"]
    assert [row.message_id for row in await read.page("default", "hook_1", DeliveryState.DELIVERED, None, 9)] == [
        "m1",
        "m0",
    ]


async def test_a_deleted_hook_takes_its_deliveries_along(store: Store, lease: Lease, hook: Any):
    await hook()
    await add_message(store, 1)
    (claimed,) = await claim(store, lease)
    await store.hooks.delete("default", "hook_1", now=2.0)
    await finish(store, claimed, attempt_of_status(200), DELIVERED)
    assert (await store.hooks.deliveries.backlog()).pending == 0


async def test_attempts_and_the_backlog_are_counted(store: Store, lease: Lease, hook: Any):
    await hook()
    for number in range(4):
        await add_message(store, number)
    outcomes = (DELIVERED, DELIVERED, FAILED, Verdict(DeliveryState.PENDING, 60.0))
    for claimed, verdict in zip(await claim(store, lease), outcomes, strict=True):
        await finish(store, claimed, attempt_of_status(200 if verdict is DELIVERED else 500), verdict)
    sums = (await store.totals.read(NOW)).sums
    counted = {labels[0]: value for (metric, labels), value in sums.items() if metric == "hook_attempts"}
    assert counted == {"delivered": 2.0, "failed": 1.0, "retried": 1.0}
    backlog = await store.hooks.deliveries.backlog()
    assert (backlog.pending, backlog.untried_s) == (1, 0.0), "the one that waits was tried"
    await add_message(store, 5)
    assert (await store.hooks.deliveries.backlog()).untried_s >= 0.0


async def test_old_deliveries_fail_and_finished_ones_are_removed(store: Store, lease: Lease, hook: Any, waiting: Any):
    await hook()
    for number in range(2):
        await add_message(store, number)
    (claimed, _) = await claim(store, lease)
    await finish(store, claimed, attempt_of_status(200), DELIVERED, now=50.0)
    kept = store.hooks.deliveries
    assert await kept.fail_old(1.0, now=60.0) == 0
    assert await kept.fail_old(4e9, now=60.0) == 1
    assert [(row.state, row.finished_at) for row in await waiting()] == [
        (DeliveryState.DELIVERED, 50.0), (DeliveryState.FAILED, 60.0),
    ]  # fmt: skip
    assert await kept.remove_before(55.0) == 1 < BATCH_ROWS
    assert [row.message_id for row in await waiting()] == ["m1"]
