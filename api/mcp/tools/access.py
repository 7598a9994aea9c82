"""Tools for identities, tokens and members of projects."""

from typing import Annotated

from pydantic import Field

from regroup.api.mcp.calls.caller import Caller
from regroup.api.mcp.calls.parameters import Count, OneProject, Person, RoleName, Seconds
from regroup.api.mcp.calls.tool import changes, reads
from regroup.api.schemas.identities import DEFAULT_EXPIRY_S, Identity, Me, Member, PermissionName, Token
from regroup.api.schemas.wire import Wire
from regroup.service.domain.errors import NotFoundError

TokenId = Annotated[str, Field(min_length=1, max_length=100, description="Id of a token, as list_tokens shows it")]
Subject = Annotated[Person | None, Field(description="Identity that the tokens prove; null for all that you see")]
MemberName = Annotated[
    str,
    Field(min_length=1, max_length=206, description="Name of an identity, or `group:NAME` of the provider"),
]


class Tokens(Wire):
    """Tokens, the newest first, without their secrets."""

    tokens: list[Token]
    total: int


class NewTokenView(Token):
    """A new token."""

    value: str | None
    """The token, which is shown once; null in a preview."""


class Members(Wire):
    """Members of a project, ordered by name."""

    members: list[Member]
    total: int


class Identities(Wire):
    """Identities, ordered by name."""

    identities: list[Identity]
    total: int


class Removed(Wire):
    """An object that was removed."""

    removed: str


async def token_state(caller: Caller, token_id: str) -> str:
    """Return the entity tag of a token; empty if the list of the caller's tokens does not have it."""
    return next((each.etag for each in await caller.client.tokens() if each.id == token_id), "")


async def member_state(caller: Caller, project: str, subject: str) -> str:
    """Return the entity tag of a member; empty if it is none."""
    return next((each.etag for each in await caller.client.members(project) if each.subject == subject), "")


@reads("Show who you are")
async def show_identity(caller: Caller) -> Me:
    """Return your identity, with the roles and permissions that your token has."""
    return await caller.client.me()


@reads("List identities")
async def list_identities(caller: Caller, limit: Count = 50) -> Identities:
    """List people and service accounts that you see."""
    found = await caller.client.identities()
    return Identities(identities=found[:limit], total=len(found))


@reads("List members of a project")
async def list_members(caller: Caller, project: OneProject, limit: Count = 50) -> Members:
    """List the members of a project with their roles."""
    found = await caller.client.members(project)
    return Members(members=found[:limit], total=len(found))


@changes("Add or change a member", state=member_state, is_destructive=True, is_idempotent=True)
async def set_member(
    caller: Caller,
    project: OneProject,
    subject: MemberName,
    role: Annotated[RoleName, Field(description="Role in the project")],
    permissions: Annotated[
        tuple[PermissionName, ...], Field(max_length=100, description="Permissions in addition to those of the role")
    ] = (),
) -> Member:
    """Make an identity or a group a member of a project, or change its role."""
    return await caller.client.set_member(project, subject, role, permissions=permissions)


@changes("Remove a member", state=member_state, is_destructive=True, is_idempotent=True)
async def remove_member(caller: Caller, project: OneProject, subject: MemberName) -> Removed:
    """Remove a member from a project."""
    await caller.client.remove_member(project, subject)
    return Removed(removed=subject)


@reads("List tokens")
async def list_tokens(caller: Caller, subject: Subject = None, limit: Count = 50) -> Tokens:
    """List tokens with their last use, the newest first: yours, and those of identities that you manage."""
    found = await caller.client.tokens(subject=subject)
    return Tokens(tokens=found[:limit], total=len(found))


@changes("Create a token", state=None)
async def create_token(
    caller: Caller,
    name: Annotated[str, Field(min_length=1, max_length=100, description="Description, for people")],
    subject: Annotated[Person | None, Field(description="Identity that it proves; null for your own")] = None,
    project: Annotated[OneProject | None, Field(description="The only project; null for all")] = None,
    role: Annotated[RoleName | None, Field(description="Highest role; null for the roles of its identity")] = None,
    expires_in_s: Seconds = DEFAULT_EXPIRY_S,
) -> NewTokenView:
    """Create a token. The answer has its secret, once: give it only to the user."""
    made = await caller.client.create_token(
        name, subject=subject, project=project, role=role, expires_in_s=expires_in_s
    )
    return NewTokenView(**made.model_dump(exclude={"value"}), value=None if caller.is_dry_run else made.value)


@changes("Revoke a token", state=token_state, is_destructive=True, is_idempotent=True)
async def revoke_token(caller: Caller, token_id: TokenId) -> Token:
    """Revoke a token. It is refused at once."""
    if not caller.state:
        raise NotFoundError(f"no token {token_id!r} that you see; list_tokens lists them")
    return await caller.client.revoke_token(token_id)
