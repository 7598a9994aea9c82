"""Delivery by e-mail, with a mail server on loopback."""

from typing import Any

from regroup.service.domain.hooks import DeliveryState, HookEvent, HookKind
from regroup.service.store.store import Store
from tests.service.operations.hooks.conftest import PROJECT
from tests.support.servers.mail_server import MailServer

BOTH = ("ana@example.com", "bob@example.com")


async def add(store: Store) -> None:
    data = {"to": "FAILED", "message": "bad value\nBcc: x@evil.example\n.\nQUIT"}
    event = HookEvent("job_1-7", "state", PROJECT, 1_700_000_000.0, "ana", data, "job_1", "gpt", {}, 7, 1)
    await store.hooks.deliveries.request(PROJECT, "hook_1", event, now=1.0)


async def test_a_message_reaches_all_recipients(
    store: Store, mail_server: MailServer, delivering: Any, hook: Any, finished: Any
):
    await hook(kind=HookKind.EMAIL, recipients=BOTH, secret=None)
    await add(store)
    async with delivering():
        (row,) = await finished()
    (mail,) = mail_server.mails
    assert (mail.sender, mail.recipients) == ("regroup@example.com", BOTH)
    assert mail.message["Subject"] == "❌ gpt is FAILED" and mail.message["Bcc"] is None
    assert "bad value Bcc: x@evil.example . QUIT" in mail.message.get_content()
    assert (row.state, row.status_code, row.error) == (DeliveryState.DELIVERED, None, "")


async def test_a_refused_recipient_is_named_and_the_others_get_it_once(
    store: Store, mail_server: MailServer, delivering: Any, hook: Any, finished: Any
):
    mail_server.refuses.add("bob@example.com")
    await hook(kind=HookKind.EMAIL, recipients=BOTH, secret=None)
    await add(store)
    async with delivering():
        (row,) = await finished()
    assert [mail.recipients for mail in mail_server.mails] == [("ana@example.com",)]
    assert row.state is DeliveryState.DELIVERED
    assert row.error == "the mail server refused bob@example.com: 550 no such mailbox"


async def test_a_server_that_refuses_for_now_gets_it_again(
    store: Store, mail_server: MailServer, delivering: Any, hook: Any, finished: Any, clock: Any
):
    mail_server.failures = 1
    await hook(kind=HookKind.EMAIL, recipients=BOTH, secret=None)
    await add(store)
    async with delivering():
        (row,) = await finished()
        assert (row.state, row.error) == (DeliveryState.PENDING, "the mail server answered 451 try again later")
        clock.now_s += 10
        (row,) = await finished(attempts=2)
    assert row.state is DeliveryState.DELIVERED
    assert [mail.message["Message-ID"] for mail in mail_server.mails] == ["<job_1-7@example.com>"]


async def test_without_a_mail_server_a_delivery_fails(store: Store, delivering: Any, hook: Any, finished: Any):
    await hook(kind=HookKind.EMAIL, recipients=BOTH, secret=None)
    await add(store)
    async with delivering(smtp_host=""):
        (row,) = await finished()
    assert row.state is DeliveryState.FAILED and "REGROUP_SMTP_HOST" in row.error


async def test_a_server_that_is_down_gets_it_later(store: Store, delivering: Any, hook: Any, finished: Any):
    await hook(kind=HookKind.EMAIL, recipients=BOTH, secret=None)
    await add(store)
    async with delivering(smtp_port=1):
        (row,) = await finished()
    assert row.state is DeliveryState.PENDING and "the mail server did not accept it" in row.error
