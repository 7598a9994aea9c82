"""Commands of `regroup hooks`: notifications of a project's events, and the log of their deliveries."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.labels import parse_labels
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table
from regroup.api.cli.common.secret_input import read_secret
from regroup.service.domain.errors import FieldIssue, SpecError

if TYPE_CHECKING:
    from regroup.api.schemas.hooks import Delivery, Hook, IssuedHook

app = typer.Typer(
    cls=GroupedCommands,
    help="Send notifications of a project's events to programs, Slack, Teams and e-mail; see docs/operations/hooks.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Project = Annotated[
    str, typer.Argument(metavar="PROJECT", autocompletion=complete_project, help="Project of the hook.")
]
HookId = Annotated[str, typer.Argument(metavar="HOOK", help="Id of the hook, as `regroup hooks list` shows it.")]
DeliveryId = Annotated[
    int, typer.Argument(metavar="DELIVERY", min=1, help="Id of the delivery, as `regroup hooks deliveries` shows it.")
]
HookName = Annotated[str, typer.Argument(metavar="NAME", help="Description of the hook, for people.")]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="URL of a program that gets CloudEvents.")]
Slack = Annotated[str | None, typer.Option("--slack", metavar="URL", help="URL of an incoming webhook of Slack.")]
Teams = Annotated[str | None, typer.Option("--teams", metavar="URL", help="URL of a workflow of Microsoft Teams.")]
Email = Annotated[list[str] | None, typer.Option("--email", metavar="ADDRESS", help="E-mail address. Repeatable.")]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "--event",
        metavar="EVENT",
        help="Type of events such as incident, or state:FAILED. Repeatable.  [default: the ends of jobs, and held]",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Label that a job must have. Repeatable."),
]
State = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="Only deliveries that are pending, delivered or failed.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Number of deliveries.")]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file", metavar="FILE", help="File with the secret of the signatures.  [default: the server makes one]"
    ),
]
_KINDS = {"url": "cloudevents", "slack": "slack", "teams": "teams", "email": "email"}
"""Option that names the destination → kind of the hook."""


def hooks_create(
    project: Project,
    name: HookName,
    url: Url = None,
    slack: Slack = None,
    teams: Teams = None,
    email: Email = None,
    events: Events = None,
    labels: Labels = None,
    secret_file: SecretFile = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Create a hook. If the server makes the secret that verifies its signatures, it is shown only now."""
    destinations = {"url": url, "slack": slack, "teams": teams, "email": email or None}
    given = [option for option, value in destinations.items() if value is not None]
    if len(given) != 1:
        raise SpecError(
            [FieldIssue("--url", "give one of --url, --slack, --teams and --email", ", ".join(given) or None)]
        )
    selected = parse_labels(labels or ())
    secret = _read_secret(secret_file)
    issued = run_action(
        server,
        lambda client: client.create_hook(
            project, name, kind=_KINDS[given[0]], url=url or slack or teams, recipients=email or (), events=events,
            labels=selected, secret=secret,
        ),
        _describe_issued,
        as_json=as_json,
    )  # fmt: skip
    if not as_json:
        print_message(f"`regroup hooks test {project} {issued.id}` sends a test")


def hooks_list(project: Project, server: Server = None, as_json: AsJson = False) -> None:
    """List the hooks of a project."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.hooks(project)
    if as_json:
        print_json(found)
        return
    rows = [
        (each.id, each.name, each.kind, _destination(each), ", ".join(each.events), _labels(each), _state(each))
        for each in found
    ]
    print_table(("HOOK", "NAME", "KIND", "DESTINATION", "EVENTS", "LABELS", "STATE"), rows)


def hooks_show(project: Project, hook: HookId, server: Server = None, as_json: AsJson = False) -> None:
    """Show a hook."""
    run_action(server, lambda client: client.hook(project, hook), _describe, as_json=as_json)


def hooks_enable(project: Project, hook: HookId, server: Server = None, as_json: AsJson = False) -> None:
    """Send notifications to a hook again."""
    run_action(
        server, lambda client: client.change_hook(project, hook, is_enabled=True), _describe_state, as_json=as_json
    )


def hooks_disable(project: Project, hook: HookId, server: Server = None, as_json: AsJson = False) -> None:
    """Send no notifications to a hook. Those that wait are kept for five days."""
    run_action(
        server, lambda client: client.change_hook(project, hook, is_enabled=False), _describe_state, as_json=as_json
    )


def hooks_rotate(
    project: Project, hook: HookId, secret_file: SecretFile = None, server: Server = None, as_json: AsJson = False
) -> None:
    """Replace the secret of a hook. For a day, each notification has the signatures of both."""
    secret = _read_secret(secret_file)
    run_action(
        server, lambda client: client.rotate_hook(project, hook, secret=secret), _describe_issued, as_json=as_json
    )


def hooks_remove(project: Project, hook: HookId, server: Server = None) -> None:
    """Remove a hook with the log of its deliveries."""
    run_action(server, lambda client: client.delete_hook(project, hook), lambda _: f"{hook} removed", as_json=False)


def hooks_test(project: Project, hook: HookId, server: Server = None, as_json: AsJson = False) -> None:
    """Send a test to a hook and wait for the first attempt. The exit code is 1 if the receiver did not accept it."""
    found = run_action(
        server, lambda client: client.test_hook(project, hook), _describe_delivery, as_json=as_json,
        wait=lambda client, added: client.wait_for_delivery(project, hook, added.id),
    )  # fmt: skip
    _exit(found)


def hooks_deliveries(
    project: Project,
    hook: HookId,
    state: State = None,
    limit: Limit = 20,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """List the deliveries of a hook, newest first."""
    from itertools import islice

    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = list(islice(client.deliveries(project, hook, state=state), limit))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            str(each.id), _time(each.created_at), each.type, each.job_name or "-", each.state, str(each.attempts),
            "-" if each.status_code is None else str(each.status_code),
            "-" if each.duration_s is None else f"{each.duration_s:.2f} s", each.error or "-",
        )
        for each in found
    ]  # fmt: skip
    print_table(("DELIVERY", "TIME", "EVENT", "JOB", "STATE", "ATTEMPTS", "STATUS", "DURATION", "PROBLEM"), rows)


def hooks_redeliver(
    project: Project, hook: HookId, delivery: DeliveryId, server: Server = None, as_json: AsJson = False
) -> None:
    """Send a message again and wait for the first attempt. The exit code is 1 if the receiver did not accept it."""
    found = run_action(
        server, lambda client: client.redeliver(project, hook, delivery), _describe_delivery, as_json=as_json,
        wait=lambda client, added: client.wait_for_delivery(project, hook, added.id),
    )  # fmt: skip
    _exit(found)


def _read_secret(file: Path | None) -> str | None:
    return None if file is None else read_secret(file, "--secret-file")


def _describe_issued(issued: "IssuedHook") -> str:
    lines = [f"{issued.id}: {', '.join(issued.events)} of project {issued.project} to {_destination(issued)}"]
    if issued.secret is not None:
        lines.append(f"secret: {issued.secret} (it is not shown again)")
    return "\n".join(lines)


def _describe(hook: "Hook") -> str:
    lines = [
        f"{hook.id}: {hook.name} ({_state(hook)})",
        f"  kind         {hook.kind}",
        f"  destination  {_destination(hook)}",
        f"  events       {', '.join(hook.events)}",
        f"  labels       {_labels(hook)}",
        f"  created      {_time(hook.created_at)} by {hook.created_by}",
    ]
    if hook.former_until is not None and hook.former_until > time.time():
        lines.append(f"  rotation     also signed with the former secret until {_time(hook.former_until)}")
    return "\n".join(lines)


def _describe_state(hook: "Hook") -> str:
    return f"{hook.id} is {_state(hook)}"


def _describe_delivery(delivery: "Delivery") -> str:
    match delivery.state:
        case "delivered":
            took = "" if delivery.duration_s is None else f" in {delivery.duration_s:.2f} s"
            note = f"; {delivery.error}" if delivery.error else ""
            return f"delivery {delivery.id}: accepted{took}{note}"
        case "failed":
            return f"delivery {delivery.id}: failed: {delivery.error}"
        case _ if delivery.duration_s is None:
            return f"delivery {delivery.id}: it waits for an attempt; `regroup hooks deliveries` shows the result"
        case _:
            return f"delivery {delivery.id}: {delivery.error}; the server tries again"


def _exit(delivery: "Delivery") -> None:
    """Exit with 1 unless the receiver accepted the delivery."""
    if delivery.state != "delivered":
        raise typer.Exit(1)


def _destination(hook: "Hook") -> str:
    return hook.url or ", ".join(hook.recipients)


def _labels(hook: "Hook") -> str:
    return ", ".join(f"{key}={value}" for key, value in hook.labels.items()) or "-"


def _state(hook: "Hook") -> str:
    return "enabled" if hook.is_enabled else "disabled"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


_VERBS = {
    "create": hooks_create,
    "list": hooks_list,
    "show": hooks_show,
    "enable": hooks_enable,
    "disable": hooks_disable,
    "rotate": hooks_rotate,
    "remove": hooks_remove,
    "test": hooks_test,
    "deliveries": hooks_deliveries,
    "redeliver": hooks_redeliver,
}
for _name, _verb in _VERBS.items():
    app.command(_name)(_verb)
