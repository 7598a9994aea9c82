"""The commands of `regroup hooks`, with the delivery task of the server and a receiver."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regroup.service.local.secrets_key import KeySource
from regroup.service.operations.hooks.delivery import HookDelivery
from tests.support.jobs.shell_commands import blocks
from tests.support.servers.app_server import AppServer
from tests.support.servers.hook_receiver import HookReceiver, running_receiver

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def receiver(server: AppServer) -> Iterator[HookReceiver]:
    """A receiver in the thread of the server, and the delivery task."""
    object.__setattr__(server._settings, "hook_private_networks", ("127.0.0.0/8",))
    stack = contextlib.AsyncExitStack()

    async def start() -> tuple[HookReceiver, asyncio.Task[None]]:
        work = HookDelivery(
            server.store, server._settings, lambda: server.lease, interval_s=0.02, keys=KeySource(server._settings)
        )
        return await stack.enter_async_context(running_receiver()), asyncio.create_task(work.run())

    async def end(task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stack.aclose()

    running, task = server.do(start())
    yield running
    server.do(end(task))


@pytest.fixture
def hook(cli: Cli, receiver: HookReceiver) -> str:
    """Return the id of a new hook."""
    created = cli("hooks", "create", "vision", "ci", "--url", receiver.url(), "--event", "state:FAILED")
    assert created.code == 0, created.err
    return created.out.partition(":")[0]


def test_a_secret_of_a_file_signs_and_is_not_printed(cli: Cli, receiver: HookReceiver, tmp_path: Path) -> None:
    first, second = (f"whsec_{letter * 32}" for letter in "AB")
    file = tmp_path / "secret"
    file.write_text(f"{first}\n")
    created = cli("hooks", "create", "vision", "ci", "--url", receiver.url(), "--secret-file", file)
    assert created.code == 0 and first not in created.out, created.err
    hook = created.out.partition(":")[0]
    assert cli("hooks", "test", "vision", hook).code == 0
    assert receiver.received[-1].is_signed_with(first)
    file.write_text(second)
    rotated = cli("hooks", "rotate", "vision", hook, "--secret-file", file)
    assert rotated.code == 0 and second not in rotated.out, rotated.err
    assert cli("hooks", "test", "vision", hook).code == 0
    assert receiver.received[-1].is_signed_with(first) and receiver.received[-1].is_signed_with(second)
    file.write_text("whsec_short")
    refused = cli("hooks", "rotate", "vision", hook, "--secret-file", file)
    assert refused.code == 3 and "secret: must be whsec_ and 24 to 64 bytes in Base64" in refused.err, refused.err
    assert "whsec_short" not in refused.err
    absent = cli("hooks", "create", "vision", "ci", "--url", receiver.url(), "--secret-file", tmp_path / "none")
    assert absent.code == 3 and "--secret-file: cannot be read" in absent.err, absent.err


def test_a_hook_is_created_with_its_secret_and_listed_without(cli: Cli, receiver: HookReceiver) -> None:
    created = cli(
        "hooks", "create", "vision", "ci", "--url", receiver.url(), "--event", "state:FAILED", "--event", "held",
        "--label", "team=nlp",
    )  # fmt: skip
    first, second = created.out.splitlines()
    hook, _, rest = first.partition(": ")
    assert rest == f"state:FAILED, held of project vision to {receiver.url()}"
    assert re.fullmatch(r"secret: whsec_[\w+/=]{44} \(it is not shown again\)", second)
    assert f"regroup hooks test vision {hook}" in created.err
    listed = cli("hooks", "list", "vision").out
    (row,) = [line for line in listed.splitlines() if hook in line]
    assert "team=nlp" in row and "enabled" in row and "whsec_" not in listed
    shown = cli("hooks", "show", "vision", hook).out
    assert "state:FAILED, held" in shown and "whsec_" not in shown
    assert cli("hooks", "remove", "vision", hook).out == f"{hook} removed\n"
    assert cli("hooks", "show", "vision", hook).code != 0


def test_a_test_states_the_result_and_can_be_repeated(cli: Cli, receiver: HookReceiver, hook: str) -> None:
    accepted = cli("hooks", "test", "vision", hook)
    assert accepted.code == 0 and re.fullmatch(r"delivery \d+: accepted in \d\.\d\d s\n", accepted.out), accepted
    receiver.answers.append((500, {}))
    refused = cli("hooks", "test", "vision", hook)
    assert refused.code == 1 and "the receiver answered 500; the server tries again" in refused.out
    header, newest, oldest = cli("hooks", "deliveries", "vision", hook).out.splitlines()
    assert header.split()[:4] == ["DELIVERY", "TIME", "EVENT", "JOB"]
    assert " test " in oldest and " delivered " in oldest and " 204 " in oldest and " 500 " in newest
    assert len(cli("hooks", "deliveries", "vision", hook, "--limit", "1").out.splitlines()) == 2
    delivery = oldest.split()[0]
    again = cli("hooks", "redeliver", "vision", hook, delivery, "--json")
    assert again.code == 0 and again.json["redelivery_of"] == int(delivery), again.err


def test_a_hook_is_disabled_enabled_and_rotated(cli: Cli, hook: str) -> None:
    assert cli("hooks", "disable", "vision", hook).out == f"{hook} is disabled\n"
    refused = cli("hooks", "test", "vision", hook)
    assert refused.code != 0 and "regroup hooks enable" in refused.err
    assert cli("hooks", "enable", "vision", hook).out == f"{hook} is enabled\n"
    assert "secret: whsec_" in cli("hooks", "rotate", "vision", hook).out
    assert "also signed with the former secret until" in cli("hooks", "show", "vision", hook).out


def test_the_commands_of_the_page_work(cli: Cli) -> None:
    (block,) = blocks("docs/operations/hooks.md", "console")
    done = [cli(*line.split()[1:]) for line in block.commands]
    assert [each.code for each in done] == [0, 0, 0], [each.err for each in done]
    *_, program, channel = done[-1].out.splitlines()
    assert "https://ci.example.com/regroup" in program and "state:FAILED, incident" in program
    assert "https://hooks.slack.com/…" in channel and "team=nlp" in channel and "T0" not in channel


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--event", "held"), "give one of --url, --slack, --teams and --email"),
        (("--url", "https://a.example", "--slack", "https://b.example"), "give one of --url"),
        (("--url", "https://a.example", "--label", "team"), "must be KEY=VALUE"),
        (("--url", "https://10.0.0.1/"), "is not a public address"),
        (("--url", "https://a.example", "--event", "failed"), "state:FAILED"),
        (("--email", "ana@example.com"), "REGROUP_SMTP_HOST"),
    ],
)
def test_a_mistake_is_named(cli: Cli, receiver: HookReceiver, arguments: tuple[str, ...], text: str) -> None:
    refused = cli("hooks", "create", "vision", "ci", *arguments)
    assert refused.code != 0 and text in refused.err, refused.err
