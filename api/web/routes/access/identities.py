"""/v1/me, /v1/identities and the members of projects: who may use the server, and in which roles."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from regroup.api.schemas.identities import (
    Identity,
    IdentityChange,
    IdentityList,
    Me,
    Member,
    MemberList,
    MemberSettings,
    NewIdentity,
    OwnMembership,
)
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, ForProject, TheSender, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.roles import Permission
from regroup.service.store.rows.identity_rows import MemberRow

SubjectName = Annotated[str, Path(max_length=300, description="Name of the identity")]
MemberName = Annotated[str, Path(min_length=1, max_length=300, description="Name of the identity, or `group:NAME`")]
"""The name of a group may be a path, as Keycloak's are: `group:/research`."""
Self = Annotated[Sender, Depends(ForEveryone("shows the sender"))]
Caller = Annotated[Sender, Depends(ForEveryone("limits identities to those that the sender sees or manages"))]
MembersReader = Annotated[str, Depends(ForProject(Permission.MEMBERS_READ))]
MembersWriter = Annotated[str, Depends(ForProject(Permission.MEMBERS_WRITE))]
router = APIRouter(route_class=OperationRoute, prefix="/v1", tags=["identities"], responses=responses())


@router.get("/me")
async def me(sender: Self) -> Me:
    """Get your identity, with the roles that your token has."""
    identity = sender.identity
    own = [
        OwnMembership(project=project, role=each.role, permissions=sorted(each.permissions))
        for project, each in sorted(identity.memberships.items())
    ]
    return Me(
        subject=identity.subject,
        kind=identity.kind,
        is_operator=identity.is_operator,
        everywhere=identity.everywhere,
        permissions=sorted(identity.permissions),
        memberships=own,
        token_id=identity.token_id,
        session_id=identity.session_id,
    )


@router.get("/identities")
async def list_(services: TheServices, sender: Caller) -> IdentityList:
    """List people and service accounts: all for operators, else yourself and the accounts of your projects."""
    rows = await services.identities.list_identities(sender)
    return IdentityList(identities=[Identity.model_validate(row) for row in rows])


@router.post("/identities", status_code=201, responses=responses("conflict", "body_too_large", "malformed_json"))
async def create(new: NewIdentity, services: TheServices, sender: Caller) -> Identity:
    """Create a person or a service account. Admins of a project create its service accounts, operators all others."""
    row = await services.identities.create(
        sender, new.subject, new.kind, new.project, new.role,
        is_operator=new.is_operator, permissions=frozenset(new.permissions),
    )  # fmt: skip
    return Identity.model_validate(row)


@router.get("/identities/{subject}")
async def get(subject: SubjectName, services: TheServices, sender: Caller) -> Identity:
    """Get an identity."""
    return Identity.model_validate(await services.identities.get(sender, subject))


@router.patch("/identities/{subject}", responses=responses("body_too_large", "malformed_json"))
async def change(subject: SubjectName, change: IdentityChange, services: TheServices, sender: Caller) -> Identity:
    """Disable or enable an identity, make it an operator, or replace its permissions. Its tokens obey at once."""
    permissions = None if change.permissions is None else frozenset(change.permissions)
    row = await services.identities.change(
        sender, subject, is_operator=change.is_operator, disabled=change.disabled, permissions=permissions
    )
    return Identity.model_validate(row)


@router.delete("/identities/{subject}", status_code=204)
async def delete(subject: SubjectName, services: TheServices, sender: Caller) -> None:
    """Delete an identity with its memberships and tokens. Its jobs continue."""
    await services.identities.delete(sender, subject)


@router.get("/projects/{name}/members")
async def members(name: MembersReader, services: TheServices) -> MemberList:
    """List the members of a project."""
    return MemberList(members=[_member(row) for row in await services.identities.members(name)])


@router.put(
    "/projects/{name}/members/{subject:path}", responses=responses("conflict", "body_too_large", "malformed_json")
)
async def put_member(
    name: MembersWriter, subject: MemberName, settings: MemberSettings, services: TheServices, sender: TheSender
) -> Member:
    """Make an identity or a group a member of a project, or change its role. It takes effect at once."""
    row = await services.identities.put_member(sender, name, subject, settings.role, frozenset(settings.permissions))
    return _member(row)


@router.delete("/projects/{name}/members/{subject:path}", status_code=204)
async def remove_member(name: MembersWriter, subject: MemberName, services: TheServices, sender: TheSender) -> None:
    """Remove a member from a project. It takes effect at once; jobs of the member continue."""
    await services.identities.remove_member(sender, name, subject)


def _member(row: MemberRow) -> Member:
    return Member(
        project=row.project,
        subject=row.subject,
        role=row.membership.role,
        permissions=sorted(row.membership.permissions),
        created_at=row.created_at,
        created_by=row.created_by,
        etag=row.etag,
    )
