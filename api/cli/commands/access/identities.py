"""Commands of `regroup identities` and `regroup members`, and whoami: who may use the server, in which roles."""

from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.action import run_action
from regroup.api.cli.common.completion import complete_project
from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_table

if TYPE_CHECKING:
    from regroup.api.schemas.identities import Identity, Me
    from regroup.api.schemas.identities import Member as MemberModel

app = typer.Typer(
    cls=GroupedCommands,
    help="Create, disable and delete people and service accounts; see docs/operations/access.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
members_app = typer.Typer(
    cls=GroupedCommands,
    help="Show and change the members of a project; see docs/operations/access.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Subject = Annotated[str, typer.Argument(metavar="IDENTITY", help="Name of the person or service account.")]
Member = Annotated[
    str, typer.Argument(metavar="MEMBER", help="Name of an identity, or group:NAME for a group of the provider.")
]
Project = Annotated[
    str, typer.Argument(metavar="PROJECT", autocompletion=complete_project, help="Name of the project.")
]
Role = Annotated[str, typer.Argument(metavar="ROLE", help="viewer, editor or admin.")]
Permissions = Annotated[
    list[str] | None,
    typer.Option(
        "--permission",
        metavar="PERMISSION",
        help="Permission in addition to the role: exec, faults, logs, priority:high or secrets:NAME. Repeatable.",
    ),
]
AccountProject = Annotated[
    str | None,
    typer.Option(
        "--service-account", metavar="PROJECT", help="Create a service account of this project instead of a person."
    ),
]
AccountRole = Annotated[
    str | None, typer.Option("--role", metavar="ROLE", help="Role of the service account in its project.")
]
ClusterPermissions = Annotated[
    list[str] | None,
    typer.Option(
        "--permission",
        metavar="PERMISSION",
        help="Permission for the cluster: metrics, nodes:write or projects:write. Repeatable.",
    ),
]
Operator = Annotated[bool, typer.Option("--operator", help="Make it an operator of the cluster.")]


def whoami(server: Server = None, as_json: AsJson = False) -> None:
    """Show your identity and your roles."""
    run_action(server, lambda client: client.me(), _describe_me, as_json=as_json)


def identities_list(server: Server = None, as_json: AsJson = False) -> None:
    """List people and service accounts that you see."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.identities()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each.subject, each.kind, each.project or "-", "yes" if each.is_operator else "no",
            "enabled" if each.disabled_at is None else "disabled", each.created_by,
        )
        for each in found
    ]  # fmt: skip
    print_table(("IDENTITY", "KIND", "PROJECT", "OPERATOR", "STATE", "CREATED BY"), rows)


def identities_create(
    subject: Subject,
    service_account: AccountProject = None,
    role: AccountRole = None,
    operator: Operator = False,
    permissions: ClusterPermissions = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Create a person, or a service account of a project."""
    kind = "user" if service_account is None else "service_account"
    run_action(
        server,
        lambda client: client.create_identity(
            subject,
            kind=kind,
            project=service_account,
            role=role,
            is_operator=operator,
            permissions=permissions or (),
        ),
        lambda found: f"{found.subject} created; `regroup token create NAME --for {found.subject}` creates its token",
        as_json=as_json,
    )


def identities_disable(subject: Subject, server: Server = None, as_json: AsJson = False) -> None:
    """Refuse all tokens of an identity at once."""
    run_action(server, lambda client: client.change_identity(subject, disabled=True), _describe_state, as_json=as_json)


def identities_enable(subject: Subject, server: Server = None, as_json: AsJson = False) -> None:
    """Accept the tokens of a disabled identity again."""
    run_action(server, lambda client: client.change_identity(subject, disabled=False), _describe_state, as_json=as_json)


def identities_permit(
    subject: Subject, permissions: ClusterPermissions = None, server: Server = None, as_json: AsJson = False
) -> None:
    """Replace the permissions of an identity for the cluster. Without options, none are left."""
    run_action(
        server,
        lambda client: client.change_identity(subject, permissions=permissions or ()),
        lambda found: f"{found.subject} has {', '.join(found.permissions) or 'no permissions'} for the cluster",
        as_json=as_json,
    )


def identities_delete(subject: Subject, server: Server = None) -> None:
    """Delete an identity with its memberships and tokens. Its jobs continue."""
    run_action(server, lambda client: client.delete_identity(subject), lambda _: f"{subject} deleted", as_json=False)


def members_list(project: Project, server: Server = None, as_json: AsJson = False) -> None:
    """List the members of a project."""
    from regroup.api.cli.common.connection import connect

    with connect(server) as client:
        found = client.members(project)
    if as_json:
        print_json(found)
        return
    rows = [(each.subject, each.role, ", ".join(each.permissions) or "-", each.created_by) for each in found]
    print_table(("MEMBER", "ROLE", "PERMISSIONS", "SET BY"), rows)


def members_set(
    project: Project,
    member: Member,
    role: Role,
    permissions: Permissions = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Make an identity or a group a member of a project, or change its role. It takes effect at once."""
    run_action(
        server,
        lambda client: client.set_member(project, member, role, permissions=permissions or ()),
        _describe_member,
        as_json=as_json,
    )


def members_remove(project: Project, member: Member, server: Server = None) -> None:
    """Remove a member from a project. It takes effect at once."""
    run_action(
        server,
        lambda client: client.remove_member(project, member),
        lambda _: f"{member} is no longer a member of {project}",
        as_json=False,
    )


def _describe_me(me: "Me") -> str:
    lines = [f"{me.subject} ({me.kind.replace('_', ' ')}{', operator of the cluster' if me.is_operator else ''})"]
    if me.everywhere is not None:
        lines.append(f"{me.everywhere} of every project")
    if me.permissions:
        lines.append(f"{', '.join(me.permissions)} for the cluster")
    for each in me.memberships:
        permissions = f", with {', '.join(each.permissions)}" if each.permissions else ""
        lines.append(f"{each.role} of project {each.project}{permissions}")
    if me.everywhere is None and not me.memberships and not me.permissions:
        lines.append("member of no project; ask an admin of the project for `regroup members set`")
    return "\n".join(lines)


def _describe_state(identity: "Identity") -> str:
    return f"{identity.subject} is {'enabled' if identity.disabled_at is None else 'disabled'}"


def _describe_member(member: "MemberModel") -> str:
    permissions = f", with {', '.join(member.permissions)}" if member.permissions else ""
    return f"{member.subject} is {member.role} of project {member.project}{permissions}"


for _name, _verb in {
    "list": identities_list,
    "create": identities_create,
    "disable": identities_disable,
    "enable": identities_enable,
    "permit": identities_permit,
    "delete": identities_delete,
}.items():
    app.command(_name)(_verb)
for _name, _verb in {"list": members_list, "set": members_set, "remove": members_remove}.items():
    members_app.command(_name)(_verb)
