"""Methods of the blocking client for identities, members of projects, tokens, and sessions of browsers."""

from collections.abc import Sequence

from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.operations import identities
from regroup.api.schemas.identities import DEFAULT_EXPIRY_S, Identity, IssuedToken, Me, Member, Token
from regroup.api.schemas.sessions import Session, SessionLink


class IdentityMethods:
    """The part of the client for access."""

    _transport: SyncTransport

    def me(self) -> Me:
        """Return your identity, with the roles that your token has."""
        return self._transport.run(identities.me())

    def identities(self) -> list[Identity]:
        """List people and service accounts that you see."""
        return self._transport.run(identities.identities())

    def identity(self, subject: str) -> Identity:
        """Return an identity."""
        return self._transport.run(identities.identity(subject))

    def create_identity(
        self,
        subject: str,
        *,
        kind: str = "user",
        project: str | None = None,
        role: str | None = None,
        is_operator: bool = False,
        permissions: Sequence[str] = (),
    ) -> Identity:
        """Create a person, or a service account of a project.

        Args:
            subject: Unique name, for example an e-mail address.
            kind: `user` or `service_account`.
            project: Project of the service account.
            role: Role of the service account in its project: `viewer`, `editor` or `admin`.
            is_operator: True for an operator of the cluster.
            permissions: Permissions for the cluster: `metrics`, `nodes:write`, `projects:write`.
        """
        request = identities.create_identity(
            subject, kind, project, role, is_operator=is_operator, permissions=permissions
        )
        return self._transport.run(request)

    def change_identity(
        self,
        subject: str,
        *,
        disabled: bool | None = None,
        is_operator: bool | None = None,
        permissions: Sequence[str] | None = None,
    ) -> Identity:
        """Disable or enable an identity, make it an operator, or replace its permissions. Its tokens obey at once."""
        request = identities.change_identity(
            subject, disabled=disabled, is_operator=is_operator, permissions=permissions
        )
        return self._transport.run(request)

    def delete_identity(self, subject: str) -> None:
        """Delete an identity with its memberships and tokens. Its jobs continue."""
        return self._transport.run(identities.delete_identity(subject))

    def members(self, project: str) -> list[Member]:
        """List the members of a project."""
        return self._transport.run(identities.members(project))

    def set_member(self, project: str, subject: str, role: str, *, permissions: Sequence[str] = ()) -> Member:
        """Make an identity, or `group:NAME`, a member of a project, or change its role and additional permissions."""
        return self._transport.run(identities.set_member(project, subject, role, permissions))

    def remove_member(self, project: str, subject: str) -> None:
        """Remove a member from a project. It takes effect at once."""
        return self._transport.run(identities.remove_member(project, subject))

    def create_token(
        self,
        name: str,
        *,
        subject: str | None = None,
        project: str | None = None,
        role: str | None = None,
        expires_in_s: float | str = DEFAULT_EXPIRY_S,
    ) -> IssuedToken:
        """Create a token. Its value is in this answer only.

        Args:
            name: Description, for people.
            subject: Identity that the token proves. Default: your own.
            project: The only project in which the token is valid.
            role: Highest role of the token.
            expires_in_s: Time after which the token is refused, in seconds or as `30d`.
        """
        return self._transport.run(identities.create_token(name, subject, project, role, expires_in_s))

    def tokens(self, *, subject: str | None = None) -> list[Token]:
        """List the tokens of an identity, or of all that you manage, the newest first."""
        return self._transport.run(identities.tokens(subject))

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a token. Requests with it are refused at once."""
        return self._transport.run(identities.revoke_token(token_id))

    def session_link(self) -> SessionLink:
        """Create a link that signs a browser in as you, once, within ten minutes. Its path follows the server's URL."""
        return self._transport.run(identities.session_link())

    def sessions(self, *, subject: str | None = None) -> list[Session]:
        """List the sessions of browsers of an identity, or of all that you see, the newest first."""
        return self._transport.run(identities.sessions(subject))

    def revoke_session(self, session_id: str) -> None:
        """End a session of a browser. Requests with it are refused at once."""
        return self._transport.run(identities.revoke_session(session_id))
