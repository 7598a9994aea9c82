"""The commands of the page about access, typed unchanged by an operator, three people and a pipeline.

The server, the identity provider and the receiver of notifications are processes or listeners of their own. Only the
names of hosts differ from the page. Each person has a folder and profiles of their own.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regroup.api.client.client import Client
from regroup.service.local.api_token import own_token, user_name
from tests.e2e.operations.test_hooks import ThreadedReceiver
from tests.support.checks.leaks import no_process_remains
from tests.support.jobs.shell_commands import Shell, blocks, own_state
from tests.support.packages.wheel import ROOT
from tests.support.servers.oidc_issuer import Issuer, running_issuer
from tests.support.servers.ports import free_port
from tests.support.servers.regroup_server import eventually

PAGE = "docs/operations/access.md"
HEADING = "From an empty machine to a team"
TYPED_ELSEWHERE = 3
"""Number of blocks below other headings, which tests/api/cli/commands/access/test_identities.py types."""
PROGRAM = """
import pathlib, time
while not pathlib.Path(__file__).with_name("go").exists():
    time.sleep(0.05)
"""
OPENS_PAGES = f"""#!{sys.executable}
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=20).read()
"""
"""A browser that follows where a page sends it."""


@dataclass
class Person:
    """A person or a program at a shell. Variables that a command exports remain for the next ones."""

    shell: Shell
    exports: list[str] = field(default_factory=list[str])

    @property
    def folder(self) -> Path:
        return self.shell.cwd

    def type(self, command: str, *, code: int = 0) -> str:
        """Type a command; return its output. It must exit with `code`."""
        printed = self.shell("; ".join([*self.exports, command]), code=code)
        if command.startswith("export "):
            self.exports.append(command)
        return printed


@dataclass(frozen=True)
class Walk:
    """The first part of the page, with the people who type it."""

    you: Person
    ana: Person
    ben: Person
    cleo: Person
    pipeline: Person
    issuer: Issuer
    threaded: ThreadedReceiver
    port: int
    unread: list[tuple[str, ...]]
    """Commands of the blocks that were not typed yet."""

    def hosts_replaced(self, text: str) -> str:
        """Return a text of the page with the addresses of this test."""
        for name, meaning in (
            ("https://login.example.com", self.issuer.url),
            ("https://ci.example.com/regroup", self.threaded.receiver.url()),
            ("10.20.0.0/16", "127.0.0.0/8"),
            ("regroup.example.com:8500", f"localhost:{self.port}"),
            ("regroup.example.com", "localhost"),
        ):
            text = text.replace(name, meaning)
        return text

    def block(self, **meanings: str) -> tuple[str, ...]:
        """Return the commands of the next block, with `meanings` for its words."""
        commands = self.unread.pop(0)
        for word, meaning in meanings.items():
            assert any(word in command for command in commands), (word, commands)
            commands = tuple(re.sub(rf"\b{word}\b", meaning, command) for command in commands)
        return tuple(map(self.hosts_replaced, commands))

    def file(self, language: str, nth: int) -> str:
        """Return the nth file of a language that the page shows."""
        return self.hosts_replaced(blocks(PAGE, language, heading=HEADING)[nth].text)

    def client(self) -> Client:
        """Return a client of the owner."""
        state = Path(self.you.shell.environment["REGROUP_STATE_DIR"])
        ca_file = self.you.folder / "chain.pem"
        return Client(f"https://localhost:{self.port}", token=own_token(state), ca_file=ca_file)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    browser = tmp_path / "browser"
    browser.write_text(OPENS_PAGES)
    browser.chmod(0o755)
    port = free_port()
    with no_process_remains(), running_issuer() as issuer, own_state(tmp_path) as environment:
        common = {**environment, "REGROUP_RAY_DASHBOARD": "false", "BROWSER": str(browser)}

        def person(name: str, **variables: str) -> Person:
            folder = tmp_path / name
            folder.mkdir()
            own = {"REGROUP_CONFIG_DIR": str(folder / "config"), "REGROUP_STATE_DIR": str(folder / "none")}
            return Person(Shell(folder, {**common, **own, **variables}, tmp_path))

        you = person("you", REGROUP_STATE_DIR=environment["REGROUP_STATE_DIR"], REGROUP_PORT=str(port))
        ana, ben, cleo, pipeline = map(person, ("ana", "ben", "cleo", "pipeline"))
        unread = [tuple(block.commands) for block in blocks(PAGE, "console", heading=HEADING)]
        threaded = ThreadedReceiver()
        try:
            yield Walk(you, ana, ben, cleo, pipeline, issuer, threaded, port, unread)
        finally:
            (tmp_path / "ben" / "go").touch()  # the program of the job ends, whatever failed
            threaded.stop()


@pytest.mark.slow
def test_the_page_leads_from_an_empty_machine_to_a_team(walk: Walk) -> None:
    start_the_server(walk)
    describe_the_team(walk)
    sign_in(walk)
    work_in_a_project(walk)
    hook, secret = send_events(walk)
    token = issue_a_token(walk)
    export_the_audit(walk)
    end_access(walk, hook, secret, token)
    assert walk.unread == []
    assert len(blocks(PAGE, "console", "sh")) == len(blocks(PAGE, "console", heading=HEADING)) + TYPED_ELSEWHERE


def start_the_server(walk: Walk) -> None:
    you = walk.you
    (make_certificate,) = walk.block()
    you.type(make_certificate)
    for person in (walk.ana, walk.ben, walk.cleo, walk.pipeline):
        shutil.copy(you.folder / "chain.pem", person.folder)
    (you.folder / "regroup.env").write_text(walk.file("ini", 0))
    serve, trust, whoami = walk.block()
    assert f"regroup serves at https://localhost:{walk.port}" in you.type(serve)
    refused = you.type(whoami, code=5)
    assert "certificate" in refused.lower(), "without the authority"
    you.type(trust)
    assert you.type(whoami).startswith(f"{user_name()} (owner, operator of the cluster)\n")


def describe_the_team(walk: Walk) -> None:
    (walk.you.folder / "setup.yaml").write_text(walk.file("yaml", 0))
    trial, apply, projects = walk.block()
    tried = walk.you.type(trial)
    assert "create identity ben@example.com" in tried and "nothing was changed" in tried
    assert "change project vision\n    limit: none → 1\n" in tried
    assert walk.you.type(apply).splitlines()[-1] == "8 changes"
    assert walk.you.type(apply) == "nothing to change\n"
    listed = {row[0]: row for row in map(str.split, walk.you.type(projects).splitlines())}
    assert listed["vision"][4] == "1" and listed["speech"][2] == "1", listed


def sign_in(walk: Walk) -> None:
    login, whoami = walk.block()
    for person, name, role in (
        (walk.ana, "ana", "admin of project vision"),
        (walk.ben, "ben", "editor of project vision"),
        (walk.cleo, "cleo", "admin of project speech"),
    ):
        walk.issuer.behave(email=f"{name}@example.com")
        assert f"signed in to https://localhost:{walk.port} as {name}@example.com\n" in person.type(login)
        assert person.type(whoami) == f"{name}@example.com (user)\n{role}\n"


def work_in_a_project(walk: Walk) -> None:
    (walk.ben.folder / "train.yaml").write_text(walk.file("yaml", 1))
    (walk.ben.folder / "train.py").write_text(PROGRAM)
    first, second, why = walk.block()
    walk.ben.type(first)
    with walk.client() as client:
        eventually(lambda: client.get("first", project="vision").state == "RUNNING", 240)
        walk.ben.type(second)
        eventually(lambda: client.get("second", project="vision").conditions, 60)
    assert "project 'vision' uses 1 of at most 1" in walk.ben.type(why)
    jobs, hidden = walk.block()
    assert "second" not in walk.cleo.type(jobs)
    assert "no job" in walk.cleo.type(hidden, code=4)
    assert "second" in walk.ana.type(jobs)


def send_events(walk: Walk) -> tuple[str, str]:
    """Type the commands about hooks; return the id and the secret of the hook."""
    create, test = walk.block()
    created = walk.ana.type(create)
    found = re.search(r"^(\w+): .*\nsecret: (whsec_\S+) ", created, re.MULTILINE)
    assert found is not None, created
    assert ": accepted in " in walk.ana.type(test.replace("HOOK", found[1]))
    walk.ben.type(f"regroup hooks test vision {found[1]}", code=7)
    (received,) = walk.threaded.receiver.received
    assert received.json["type"] == "regroup.job.test" and received.is_signed_with(found[2])
    return found[1], found[2]


def issue_a_token(walk: Walk) -> str:
    """Type the commands about the pipeline; return its token."""
    create, issue, members = walk.block()
    walk.ana.type(create)
    assert "it is not shown again" in walk.ana.type(issue)
    file = walk.ana.folder / "pipeline.token"
    assert file.stat().st_mode & 0o077 == 0
    rows = [line.split()[:2] for line in walk.ana.type(members).splitlines()[1:]]
    assert rows == [["ana@example.com", "admin"], ["ben@example.com", "editor"], ["vision-ci", "editor"]]
    shutil.copy(file, walk.pipeline.folder)
    export, whoami, jobs = walk.block()
    walk.pipeline.type(export)
    assert walk.pipeline.type(whoami) == "vision-ci (service account)\neditor of project vision\n"
    assert "first" in walk.pipeline.type(jobs)
    return file.read_text().strip()


def export_the_audit(walk: Walk) -> None:
    show, export, verify = walk.block()
    listed = walk.you.type(show)
    assert re.search(r"ben@example.com +jobs.submit", listed) and re.search(r"ana@example.com +hooks.create", listed)
    wait_until_sealed(walk)
    exported = walk.you.type(export)
    assert re.match(r"(\d+) records; continue", exported), exported
    assert re.match(
        r"\d+ records are complete and unchanged; the chain ends with \d+:[0-9a-f]{64}\n", walk.you.type(verify)
    )
    lines = (walk.you.folder / "audit.jsonl").read_text().splitlines()
    (walk.you.folder / "damaged.jsonl").write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
    assert "NOT COMPLETE" in walk.you.type("regroup audit verify damaged.jsonl", code=1)


def end_access(walk: Walk, hook: str, secret: str, token: str) -> None:
    setup, entry = walk.you.folder / "setup.yaml", "ben@example.com: {disabled: true}"
    assert f"`{entry}`" in (ROOT / PAGE).read_text()
    text = setup.read_text().replace("ben@example.com: {}", entry)
    setup.write_text(text.replace("      ben@example.com: editor\n", ""))
    apply, remove = walk.block()
    assert walk.you.type(apply) == "change identity ben@example.com\n    disabled: no → yes\n1 change\n"
    walk.you.type(remove)
    assert "'ben@example.com' is disabled" in walk.ben.type("regroup jobs", code=7)
    walk.issuer.behave(email="ben@example.com")
    refused = walk.ben.type(f"regroup login --server https://localhost:{walk.port} --ca-file chain.pem", code=7)
    assert "'ben@example.com' is disabled" in refused

    jobs, cancel = walk.block()
    assert re.search(r"first +RUNNING", walk.ana.type(jobs)), "his job continues"
    walk.ana.type(cancel)
    (walk.ben.folder / "go").touch()
    with walk.client() as client:
        first = client.wait("first", project="vision", timeout_s=120)
        assert (first.state, client.get("second", project="vision").state) == ("SUCCEEDED", "CANCELLED")

    old = token.split("_")[1]
    tokens, issue, revoke, rotate = walk.block(TOKEN=old, HOOK=hook)
    assert old in walk.ana.type(tokens)
    walk.ana.type(issue)
    walk.ana.type(revoke)
    assert "is revoked" in walk.pipeline.type("regroup whoami", code=7)
    shutil.copy(walk.ana.folder / "pipeline.token", walk.pipeline.folder)
    assert walk.pipeline.type("regroup whoami").startswith("vision-ci")
    rotated = re.search(r"^secret: (whsec_\S+) ", walk.ana.type(rotate), re.MULTILINE)
    assert rotated is not None and rotated[1] != secret
    walk.ana.type(f"regroup hooks test vision {hook}")
    received = walk.threaded.receiver.received
    newest = next(each for each in reversed(received) if each.json["type"] == "regroup.job.test")
    assert newest.is_signed_with(rotated[1]) and newest.is_signed_with(secret)
    states = {each.json["data"]["event"]["to"] for each in list(received) if each.json["type"] == "regroup.job.state"}
    assert {"SUCCEEDED", "CANCELLED"} <= states

    by_him, about_him, export, verify = walk.block()
    assert re.search(r"ben@example.com +jobs.submit", walk.you.type(by_him))
    assert re.search(r"disabled_at: none →", walk.you.type(about_him))
    wait_until_sealed(walk)
    walk.you.type(export)
    assert " complete and unchanged" in walk.you.type(verify)
    walk.you.type("regroup identities delete ben@example.com")
    assert re.search(r"ben@example.com +jobs.submit", walk.you.type(by_him)), "the records remain"


def wait_until_sealed(walk: Walk) -> None:
    """Wait until the newest record has its place in the chain, about a second after its change."""
    with walk.client() as client:
        eventually(lambda: next(iter(client.audit())).position is not None, 30)
