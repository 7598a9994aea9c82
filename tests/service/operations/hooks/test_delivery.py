"""The delivery task with real receivers: signatures, retries, limits, leadership and crashes."""

import asyncio
from typing import Any

from regroup.service.domain.author import Author
from regroup.service.domain.credentials.keyring import Key, Keyring, Owner
from regroup.service.domain.hooks import DeliveryState, HookEvent
from regroup.service.policy.hooks.retries import DELAYS_S, MAX_ATTEMPTS
from regroup.service.store.store import Store
from tests.service.operations.hooks.conftest import PROJECT, SECRET, Clock
from tests.support.servers.hook_receiver import HookReceiver

ANA = Author("ana")


async def add(store: Store, number: int = 1, hook_id: str = "hook_1") -> int:
    event = HookEvent(f"m{number}", "state", PROJECT, 5.0, "ana", {"to": "FAILED"}, "job_1", "gpt", {}, number, 1)
    return (await store.hooks.deliveries.request(PROJECT, hook_id, event, now=1.0, author=ANA)).id


async def test_a_notification_arrives_signed_and_is_logged(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    await hook(url=receiver.url("/in?tenant=7"))
    await add(store)
    async with delivering():
        (row,) = await finished()
    (received,) = receiver.received
    assert received.path == "/in?tenant=7" and received.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert received.is_signed_with(SECRET) and not received.is_signed_with("whsec_b3RoZXI=")
    assert received.headers["webhook-timestamp"] == str(int(clock.now_s))
    assert received.headers["content-type"].startswith("application/cloudevents+json")
    assert (received.json["id"], received.json["type"]) == (received.headers["webhook-id"], "regroup.job.state")
    assert (row.state, row.status_code, row.attempts, row.error) == (DeliveryState.DELIVERED, 204, 1, "")
    assert row.duration_s is not None and row.duration_s < 10


async def test_an_attempt_is_repeated_with_the_same_body_and_a_new_time(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    receiver.answers = [(503, {}), (500, {})]
    await hook(url=receiver.url())
    await add(store)
    async with delivering():
        (row,) = await finished()
        assert (row.state, row.error) == (DeliveryState.PENDING, "the receiver answered 503")
        assert 0.8 * DELAYS_S[0] <= row.next_attempt_at - clock.now_s <= 1.2 * DELAYS_S[0]
        for attempts in (2, 3):
            clock.now_s += 1.3 * DELAYS_S[attempts - 2]
            (row,) = await finished(attempts=attempts)
    assert (row.state, row.attempts) == (DeliveryState.DELIVERED, 3)
    first, second, third = receiver.received
    assert first.body == second.body == third.body
    assert len({each.headers["webhook-timestamp"] for each in receiver.received}) == 3
    assert {each.headers["webhook-id"] for each in receiver.received} == {"m1"}
    assert all(each.is_signed_with(SECRET) for each in receiver.received)


async def test_after_the_last_attempt_a_delivery_has_failed_and_can_be_repeated(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    receiver.answers = [(500, {})] * MAX_ATTEMPTS
    await hook(url=receiver.url())
    delivery = await add(store)
    async with delivering():
        for attempts in range(1, MAX_ATTEMPTS + 1):
            (row,) = await finished(attempts=attempts)
            clock.now_s += 1.3 * 86_400
        assert (row.state, row.attempts) == (DeliveryState.FAILED, MAX_ATTEMPTS)
        await store.hooks.deliveries.repeat(PROJECT, "hook_1", delivery, now=clock.now_s)
        _, again = await finished(2)
    assert (again.state, again.redelivery_of) == (DeliveryState.DELIVERED, delivery)
    assert receiver.received[-1].body == receiver.received[0].body


async def test_a_receiver_chooses_a_longer_delay(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    receiver.answers = [(429, {"Retry-After": "600"})]
    await hook(url=receiver.url())
    await add(store)
    async with delivering():
        (row,) = await finished()
    assert row.next_attempt_at - clock.now_s == 600


async def test_a_receiver_that_is_gone_disables_the_hook(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any
):
    receiver.answers = [(410, {})]
    await hook(url=receiver.url())
    await add(store)
    async with delivering():
        (row,) = await finished()
    assert row.state is DeliveryState.FAILED and "410" in row.error
    assert not (await store.hooks.hook(PROJECT, "hook_1")).is_enabled


async def test_a_slow_receiver_gets_few_at_once_and_delays_no_other(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any
):
    receiver.gate.clear()
    await hook("slow", url=receiver.url("/slow"))
    for number in range(9):
        await add(store, number, "slow")
    async with delivering():
        await receiver.wait_for(4)
        await hook("fast", url=receiver.url("/fast"))
        await add(store, 1, "fast")
        received = await receiver.wait_for(5)
        assert [each.path for each in received].count("/slow") == 4, "the others wait"
        receiver.gate.set()
        rows = await finished(9, hook_id="slow")
    assert {row.state for row in rows} == {DeliveryState.DELIVERED} and receiver.most_at_once == 5


async def test_without_the_lead_nothing_is_sent(store: Store, receiver: HookReceiver, delivering: Any, hook: Any):
    await hook(url=receiver.url())
    await add(store)
    async with delivering(is_leader=False) as passes, asyncio.timeout(20):
        for _ in range(5):
            await passes.get()
    assert receiver.received == []
    assert (await store.hooks.deliveries.backlog()).pending == 1


async def test_a_server_that_ends_during_an_attempt_repeats_it(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    receiver.gate.clear()
    await hook(url=receiver.url())
    await add(store)
    async with delivering():
        await receiver.wait_for(1)
    receiver.gate.set()
    clock.now_s += 60
    async with delivering():
        (row,) = await finished(attempts=2)
    first, second = receiver.received
    assert row.state is DeliveryState.DELIVERED
    assert first.headers["webhook-id"] == second.headers["webhook-id"], "the receiver recognizes the repetition"


async def test_a_rotated_hook_has_both_signatures_for_a_day(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    await hook(url=receiver.url())
    new = "whsec_bmV3"
    await store.hooks.rotate(PROJECT, "hook_1", new, former_until=clock.now_s + 10, now=clock.now_s)
    async with delivering():
        await add(store, 1)
        await finished(1)
        clock.now_s += 11
        await add(store, 2)
        await finished(2)
    during, after = receiver.received
    assert during.is_signed_with(SECRET) and during.is_signed_with(new)
    assert after.is_signed_with(new) and not after.is_signed_with(SECRET)


async def test_a_notification_is_signed_with_an_encrypted_secret(
    store: Store, receiver: HookReceiver, delivering: Any, hook: Any, finished: Any, clock: Clock
):
    """Let the first attempt fail without a key, and the next one succeed with it."""
    keyring = Keyring((Key.of(b"1" * 32),), "the key file")
    sealed = keyring.seal(SECRET, Owner("hook", PROJECT, "hook_1"))
    keyrings: list[Keyring | None] = [None]
    await hook(url=receiver.url(), secret=sealed)
    await add(store)
    async with delivering(keyrings=keyrings):
        (row,) = await finished()
        assert row.state is DeliveryState.PENDING and row.status_code is None
        assert row.error.startswith("the notification cannot be signed: the server has no key for stored secrets")
        keyrings.append(keyring)
        clock.now_s += 1.3 * DELAYS_S[0]
        (row,) = await finished(attempts=2)
    (received,) = receiver.received
    assert row.state is DeliveryState.DELIVERED and received.is_signed_with(SECRET)
