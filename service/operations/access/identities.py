"""Use cases of identities, members of projects, and tokens."""

from collections.abc import Callable
from dataclasses import dataclass, field

from regroup.service.domain.credentials.api_tokens import generate_token
from regroup.service.domain.errors import ConflictError, FieldIssue, ForbiddenError, NotFoundError, SpecError
from regroup.service.domain.identity import IdentityKind, Membership, Role
from regroup.service.domain.reserved_names import is_reserved
from regroup.service.operations.access.authentication import Authentication
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.access.external_tokens import ExternalTokens
from regroup.service.policy.access.decision import is_allowed, refused_cluster_permissions, refused_permissions
from regroup.service.policy.access.external import GROUP_PREFIX
from regroup.service.policy.access.roles import ADDABLE, CLUSTER_ADDABLE, ClusterPermission, Permission
from regroup.service.store.rows.identity_rows import IdentityRow, MemberRow, TokenRow
from regroup.service.store.store import Store


@dataclass(frozen=True)
class TokenRequest:
    """A token to create."""

    name: str
    subject: str | None
    """Identity that the token proves; None for the sender's own."""
    project: str | None
    role: Role | None
    expires_in_s: float


@dataclass(frozen=True)
class IssuedToken:
    """A new token. Its value is shown once."""

    row: TokenRow
    value: str = field(repr=False)


class Identities:
    """Use cases of identities.

    Args:
        clock: Unix seconds.
    """

    def __init__(
        self, store: Store, authentication: Authentication, external: ExternalTokens, clock: Callable[[], float]
    ) -> None:
        self._store, self._authentication, self._external = store.identities, authentication, external
        self._clock = clock

    # ------------------------------------------------------------ identities

    async def list_identities(self, sender: Sender) -> list[IdentityRow]:
        """Return the identities that the sender sees: all for operators, else its own and those of its projects."""
        return [row for row in await self._store.identities() if _is_visible(sender, row)]

    async def get(self, sender: Sender, subject: str) -> IdentityRow:
        """Return an identity; raises NotFoundError if the sender does not see it."""
        row = await self._store.identity(subject)
        if not _is_visible(sender, row):
            raise NotFoundError(f"no identity {subject!r}")
        return row

    async def create(
        self,
        sender: Sender,
        subject: str,
        kind: IdentityKind,
        project: str | None,
        role: Role | None,
        *,
        is_operator: bool,
        permissions: frozenset[str] = frozenset(),
    ) -> IdentityRow:
        """Create an identity, and make a service account a member of its project if `role` is given.

        Args:
            permissions: permissions for the cluster.

        Raises:
            SpecError: the fields contradict each other.
            ConflictError: the subject exists.
            NotFoundError, ForbiddenError: as `Sender.require`.
        """
        issues = _contradictions(subject, kind, project, role, is_operator)
        if issues := [*issues, *_wrong_permissions(permissions, project)]:
            raise SpecError(issues)
        if project is None:
            sender.require_in_cluster(ClusterPermission.IDENTITIES_WRITE)
        else:
            sender.require(Permission.MEMBERS_WRITE, project)
        now = self._clock()
        row = IdentityRow(subject, kind, project, is_operator, now, sender.name, permissions=permissions)
        await self._store.create_identity(row, author=sender.author)
        if project is not None and role is not None:
            member = MemberRow(project, subject, Membership(role), now, sender.name)
            await self._store.put_member(member, author=sender.author)
        return row

    async def change(
        self,
        sender: Sender,
        subject: str,
        *,
        is_operator: bool | None,
        disabled: bool | None,
        permissions: frozenset[str] | None = None,
    ) -> IdentityRow:
        """Disable or enable an identity, make it an operator, or replace its permissions. Its tokens obey at once.

        Raises:
            NotFoundError: there is no such identity, or the sender does not see it.
            ForbiddenError: the sender does not manage the identity, or is not an operator.
        """
        row = await self._managed_for_others(sender, subject)
        if is_operator is not None:
            sender.require_in_cluster(ClusterPermission.IDENTITIES_WRITE)
            if is_operator and row.kind is IdentityKind.SERVICE_ACCOUNT and row.project is not None:
                raise SpecError([_issue("is_operator", f"{subject!r} belongs to project {row.project!r}", True)])
            row = await self._store.change_identity(
                subject, now=self._clock(), author=sender.author, is_operator=is_operator
            )
        if permissions is not None:
            sender.require_in_cluster(ClusterPermission.IDENTITIES_WRITE)
            if issues := _wrong_permissions(permissions, row.project):
                raise SpecError(issues)
            row = await self._store.change_identity(
                subject, now=self._clock(), author=sender.author, permissions=sorted(permissions)
            )
        if disabled is not None and disabled != (row.disabled_at is not None):
            now = self._clock()
            row = await self._store.change_identity(
                subject, now=now, author=sender.author, disabled_at=now if disabled else None
            )
        self._forget_tokens()
        return row

    async def delete(self, sender: Sender, subject: str) -> None:
        """Delete an identity with its memberships and tokens. Raises the errors of `change`."""
        await self._managed_for_others(sender, subject)
        await self._store.delete_identity(subject, now=self._clock(), author=sender.author)
        self._forget_tokens()

    # ------------------------------------------------------------ members

    async def members(self, project: str) -> list[MemberRow]:
        """Return the members of a project, by subject."""
        return await self._store.members(project)

    async def put_member(
        self, sender: Sender, project: str, subject: str, role: Role, permissions: frozenset[str]
    ) -> MemberRow:
        """Create or replace a membership.

        Raises:
            SpecError: a permission cannot be added to a role.
            NotFoundError: no identity has this subject.
            ConflictError: the subject is a service account of another project.
        """
        if wrong := refused_permissions(permissions):
            allowed = ", ".join([*sorted(ADDABLE), "secrets:NAME"])
            raise SpecError([_issue("permissions", f"cannot be granted; use some of {allowed}", wrong[0])])
        if not subject.startswith(GROUP_PREFIX):
            owner = (await self._store.identity(subject)).project
            if owner is not None and owner != project:
                raise ConflictError(f"{subject!r} is a service account of another project; create one for {project!r}")
        row = MemberRow(project, subject, Membership(role, permissions), self._clock(), sender.name)
        await self._store.put_member(row, author=sender.author)
        self._forget_tokens()
        return row

    async def remove_member(self, sender: Sender, project: str, subject: str) -> None:
        """Remove a member from a project; raises NotFoundError."""
        await self._store.remove_member(project, subject, now=self._clock(), author=sender.author)
        self._forget_tokens()

    # ------------------------------------------------------------ tokens

    async def create_token(self, sender: Sender, request: TokenRequest) -> IssuedToken:
        """Create a token. Its value is returned once, and only a digest is stored.

        Raises:
            SpecError: the token names no identity, and the sender has none of its own.
            NotFoundError, ForbiddenError: the sender does not manage the identity, or has a limited token itself.
        """
        subject = request.subject or sender.name
        if request.subject is None and sender.identity.kind is IdentityKind.OWNER:
            message = "the owner of the server needs no token; name the identity that the token is for"
            raise SpecError([_issue("subject", message, None)])
        if sender.identity.is_limited:
            raise ForbiddenError("a token that is limited to a project or a role cannot create tokens; sign in again")
        await self._managed(sender, subject)
        parts, now = generate_token(), self._clock()
        expires_at = now + request.expires_in_s
        row = TokenRow(
            parts.id, subject, request.name, parts.digest, request.project, request.role, now, sender.name, expires_at
        )
        await self._store.create_token(row, author=sender.author)
        return IssuedToken(row, parts.value)

    async def tokens(self, sender: Sender, subject: str | None) -> list[TokenRow]:
        """Return the tokens of an identity, the newest first; without a subject, of all that the sender manages."""
        if subject is not None:
            await self._managed(sender, subject)
            return await self._store.tokens(subject)
        managed = {row.subject for row in await self._store.identities() if _manages(sender, row)}
        return [row for row in await self._store.tokens() if row.subject in managed]

    async def revoke_token(self, sender: Sender, token_id: str) -> TokenRow:
        """Revoke a token. Requests with it are refused at once. Without effect if it is revoked.

        Raises:
            NotFoundError: there is no such token, or the sender does not manage its identity.
        """
        row = await self._store.token(token_id)
        if not _manages(sender, await self._store.identity(row.subject)):
            raise NotFoundError(f"no token {token_id!r}; `regroup token list` lists them")
        revoked = await self._store.revoke_token(token_id, self._clock(), author=sender.author)
        self._forget_tokens()
        return revoked

    def _forget_tokens(self) -> None:
        """Read identities again at the next use of any token, of this server or of another system."""
        self._authentication.forget()
        self._external.forget()

    async def _managed_for_others(self, sender: Sender, subject: str) -> IdentityRow:
        """Return a managed identity other than the own one, because a stolen token must not end its identity."""
        row = await self._managed(sender, subject)
        if row.subject == sender.name and not sender.identity.is_operator:
            raise ForbiddenError(f"{subject} cannot change or delete itself; operators of the cluster can")
        return row

    async def _managed(self, sender: Sender, subject: str) -> IdentityRow:
        """Return an identity that the sender manages; raises NotFoundError or ForbiddenError."""
        row = await self.get(sender, subject)
        if not _manages(sender, row):
            raise ForbiddenError(f"{sender.name} does not manage {subject!r}; operators of the cluster do")
        return row


def _is_visible(sender: Sender, row: IdentityRow) -> bool:
    if row.subject == sender.name or _manages(sender, row):
        return True
    return row.project is not None and is_allowed(sender.identity, Permission.MEMBERS_READ, row.project)


def _manages(sender: Sender, row: IdentityRow) -> bool:
    """Return True for operators, for an identity itself, and for admins of a service account's project.

    A limited token does not manage the identity that it proves.
    """
    if sender.identity.is_operator or (row.subject == sender.name and not sender.identity.is_limited):
        return True
    return row.project is not None and is_allowed(sender.identity, Permission.MEMBERS_WRITE, row.project)


def _contradictions(
    subject: str, kind: IdentityKind, project: str | None, role: Role | None, is_operator: bool
) -> list[FieldIssue]:
    found: list[FieldIssue] = []
    if kind is IdentityKind.OWNER:
        found.append(_issue("kind", "the owner of the server exists already; use user or service_account", kind))
    if is_reserved(subject):
        found.append(_issue("subject", "is a name of the system in events; choose another", subject))
    if subject.startswith(GROUP_PREFIX):
        found.append(_issue("subject", "groups come from the identity provider; make the group a member", subject))
    if project is not None and kind is not IdentityKind.SERVICE_ACCOUNT:
        found.append(_issue("project", "only a service account belongs to a project; make a person a member", project))
    if project is not None and is_operator:
        found.append(_issue("is_operator", "a service account of a project cannot be an operator", is_operator))
    if role is not None and project is None:
        found.append(_issue("role", "needs a project; make the identity a member of each project", role))
    return found


def _wrong_permissions(permissions: frozenset[str], project: str | None) -> list[FieldIssue]:
    if permissions and project is not None:
        message = f"admins of project {project!r} manage this account, so it has no permissions for the cluster"
        return [_issue("permissions", message, sorted(permissions)[0])]
    if wrong := refused_cluster_permissions(permissions):
        allowed = ", ".join(sorted(CLUSTER_ADDABLE))
        return [_issue("permissions", f"use some of {allowed}; only operators have others", wrong[0])]
    return []


def _issue(field_name: str, message: str, value: object) -> FieldIssue:
    return FieldIssue(field_name, message, value)
