"""Secrets of projects in the controller: jobs wait until they can be read, and supervisors get the newest values."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from regroup.service.cluster_state.secrets import SECRETS_READABLE, SecretReader
from regroup.service.controller.controller import Controller
from regroup.service.controller.leader_context import LeaderContext
from regroup.service.controller.secrets import SecretReconciler, with_readable_secrets
from regroup.service.domain.credentials.keyring import Key, Keyring, KeyringError, Keys, no_keys
from regroup.service.ports.sync import SecretValues
from regroup.service.store.rows.records import JobRow, Lease
from regroup.service.store.secrets.rows import secret_owner
from regroup.service.store.store import Store
from tests.service.controller.test_controller import ControlSetup
from tests.service.controller.test_controller import setup as setup
from tests.support.doubles.leader_context import leader_context
from tests.support.inputs.held_devices import submit
from tests.support.inputs.sync_records import status

VALUE = "hunter2-4f1d09c6"
RING = Keyring((Key.of(b"1" * 32),), "the key file")
USES = {"HF_TOKEN": {"from_project": "hf-token"}, "OTHER": {"from_env": "OTHER"}}


@pytest.fixture
async def lease(setup: ControlSetup) -> Lease:
    acquired = await setup.store.acquire_lease("test", 1e6)
    assert acquired is not None
    return acquired


@pytest.fixture
def leader(setup: ControlSetup, lease: Lease) -> Callable[..., LeaderContext]:
    def make(keys: Keys = lambda: RING) -> LeaderContext:
        return replace(leader_context(setup.store, lease), secrets=SecretReader(setup.store, keys))

    return make


async def set_secret(store: Store, value: str = VALUE, name: str = "hf-token", now: float = 1.0) -> None:
    await store.secrets.set(
        "default", name, lambda version: RING.seal(value, secret_owner("default", name, version)), now=now
    )


async def queued(store: Store, job_id: str = "j-one", **fields: Any) -> JobRow:
    await submit(store, job_id, **{"secrets": USES, **fields})
    return await store.job(job_id)


async def test_a_job_waits_until_its_secrets_can_be_read(setup: ControlSetup, leader: Any) -> None:
    job, free = await queued(setup.store), await queued(setup.store, "j-two", secrets={})
    assert await with_readable_secrets(leader(), [job, free]) == [free]
    (condition,) = (await setup.store.job("j-one")).conditions
    assert (condition.type, condition.status, condition.reason) == (SECRETS_READABLE, False, "secret_unreadable")
    assert "has no secret 'hf-token' any more" in condition.message and "regroup secret set" in condition.message
    await set_secret(setup.store)
    assert await with_readable_secrets(leader(), [job, free]) == [job, free]


def unreadable_file() -> Keyring | None:
    raise KeyringError("the key file /keys cannot be read (No such file or directory)")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (no_keys, "the server has no key for stored secrets"),
        (unreadable_file, "the key file /keys cannot be read"),
        (lambda: Keyring((Key.of(b"2" * 32),), "the key file"), "which the server does not have; add this key to"),
    ],
)
async def test_a_missing_key_delays_only_jobs_that_need_it(
    setup: ControlSetup, leader: Any, keys: Keys, problem: str
) -> None:
    await set_secret(setup.store)
    job, free = await queued(setup.store), await queued(setup.store, "j-two", secrets={})
    assert await with_readable_secrets(leader(keys), [job, free]) == [free]
    (condition,) = (await setup.store.job("j-one")).conditions
    assert problem in condition.message and VALUE not in condition.message


async def test_values_are_sent_until_the_supervisor_has_them(setup: ControlSetup, leader: Any) -> None:
    await set_secret(setup.store)
    job = await queued(setup.store)
    reconciler = SecretReconciler(leader())
    assert reconciler.intents(job, None).secrets is None  # type: ignore[arg-type]
    await reconciler.reconcile(job, status(), 10.0)
    sent = reconciler.intents(job, None).secrets  # type: ignore[arg-type]
    assert sent is not None and sent.values == {"hf-token": VALUE} and VALUE not in repr(sent)
    assert (await setup.store.secrets.secret("default", "hf-token")).used_at is None
    await reconciler.reconcile(job, status(secrets_version=sent.version), 20.0)
    assert reconciler.intents(job, None).secrets is None  # type: ignore[arg-type]
    assert (await setup.store.secrets.secret("default", "hf-token")).used_at == 20.0


async def test_a_changed_value_is_sent_again_and_a_restart_gets_it(setup: ControlSetup, leader: Any) -> None:
    await set_secret(setup.store)
    job = await queued(setup.store)
    reconciler = SecretReconciler(leader())

    async def sent(version: str) -> SecretValues | None:
        await reconciler.reconcile(job, status(secrets_version=version), 10.0)
        return reconciler.intents(job, None).secrets  # type: ignore[arg-type]

    first = await sent("")
    assert first is not None and await sent(first.version) is None
    await set_secret(setup.store, "another", now=2.0)
    second = await sent(first.version)
    assert second is not None and second.values == {"hf-token": "another"} and second.version != first.version
    assert await sent(second.version) is None
    await setup.store.secrets.delete("default", "hf-token", now=3.0)
    await set_secret(setup.store, "third", now=4.0)
    third = await sent(second.version)
    assert third is not None and third.values == {"hf-token": "third"}, "a new secret of the same name is a change"
    assert await sent("") == third, "the supervisor has started again"


async def test_a_deleted_secret_is_shown_only_while_it_is_needed(setup: ControlSetup, leader: Any) -> None:
    await set_secret(setup.store)
    job = await queued(setup.store)
    reconciler = SecretReconciler(leader())
    await reconciler.reconcile(job, status(), 10.0)
    sent = reconciler.intents(job, None).secrets  # type: ignore[arg-type]
    assert sent is not None
    await setup.store.secrets.delete("default", "hf-token", now=3.0)
    await reconciler.reconcile(job, status(secrets_version=sent.version), 10.0)
    assert (await setup.store.job(job.id)).conditions == (), "the supervisor has the value"
    await reconciler.reconcile(job, status(), 10.0)
    (condition,) = (await setup.store.job(job.id)).conditions
    assert condition.type == SECRETS_READABLE and "has no secret 'hf-token'" in condition.message
    await set_secret(setup.store, now=5.0)
    await reconciler.reconcile(await setup.store.job(job.id), status(), 10.0)
    assert (await setup.store.job(job.id)).conditions == ()
    assert reconciler.intents(job, None).secrets is not None  # type: ignore[arg-type]


async def test_a_job_without_project_secrets_costs_nothing(setup: ControlSetup, leader: Any) -> None:
    job = await queued(setup.store, secrets={"OTHER": {"from_env": "OTHER"}})
    context = leader()
    object.__setattr__(context, "secrets", None)
    reconciler = SecretReconciler(context)
    await reconciler.reconcile(job, status(), 10.0)
    assert reconciler.intents(job, None).set_fields() == {}  # type: ignore[arg-type]


async def test_a_supervisor_gets_values_with_a_sync_and_not_with_its_start(setup: ControlSetup) -> None:
    await set_secret(setup.store)
    controller = asyncio.create_task(Controller(setup.store, setup.cluster, setup.settings, keys=lambda: RING).run())
    try:
        job_id = await setup.submit(secrets=USES)
        supervisor = await setup.supervisor(job_id)
        await supervisor.state("RUNNING", "first_step")  # an event ends the first long poll
        sent = await asyncio.wait_for(supervisor.wait_for_intent("secrets"), 10)
        assert sent["values"] == {"hf-token": VALUE}
        assert supervisor.payload["spec"]["secrets"]["HF_TOKEN"]["from_project"] == "hf-token"
        assert VALUE not in str(supervisor.payload)
        events = await setup.store.events(job_id, 0, 100)
        assert events and VALUE not in str([events, await setup.store.job(job_id)])
    finally:
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)
