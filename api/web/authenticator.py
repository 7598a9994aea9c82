"""Authentication of requests: the private token of the server's owner, or a token of an identity."""

import hashlib
import hmac

from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import Identity, IdentityKind, Role
from regroup.service.local.api_token import ApiToken
from regroup.service.operations.access.authentication import Authentication
from regroup.service.operations.access.external_tokens import ExternalTokens
from regroup.service.operations.access.sessions import Owner

_JWT_DOTS = 2
"""Number of dots in a signed JWT (RFC 7515, section 3.1)."""


class Authenticator:
    """Finds the identity of a request.

    Args:
        token: the owner's token. Its file proves the operating-system user who runs the server.
        authentication: tokens of all other identities.
        external: tokens that other systems issue.
    """

    def __init__(self, token: ApiToken, authentication: Authentication, external: ExternalTokens) -> None:
        self._token, self._authentication, self._external = token, authentication, external
        self._owner = Identity(token.owner, IdentityKind.OWNER, everywhere=Role.ADMIN, is_operator=True)

    @property
    def owner(self) -> Owner:
        """The owner of the server, for sessions of browsers."""
        return Owner(self._owner, hashlib.sha256(self._token.value.encode()).hexdigest())

    async def identify(self, value: str | None, *, has_header: bool) -> Identity:
        """Return the identity that a token proves.

        Args:
            value: token of the request; None if it has none.
            has_header: True if the request has an `Authorization` header, for the message.

        Raises:
            UnauthorizedError: there is no token, or it is not valid.
            UnavailableError: the database does not answer.
        """
        if value is not None and _are_equal(value, self._token.value):
            return self._owner
        if value is not None and value.startswith("rg_"):
            return await self._authentication.identify(value)
        if value is not None and self._external.is_enabled and value.count(".") == _JWT_DOTS:
            identity = await self._external.identify(value)
            if identity.subject == self._owner.subject:
                raise UnauthorizedError(f"the name {identity.subject!r} is that of the server's owner")
            return identity
        problem = "the token in Authorization is not one of this server" if has_header else "there is none"
        raise UnauthorizedError(
            f"this server needs a token, and {problem}. `regroup token create` creates one. The token of the server's "
            f"owner is in the file {self._token.path} on the server's machine. The command line and the Python client "
            "find it for the server of this machine; for another one, set REGROUP_TOKEN to the token, or "
            "REGROUP_TOKEN_FILE or `regroup --token-file` to a copy of the file. Other programs send "
            "`Authorization: Bearer TOKEN`; a browser asks for it as the password"
        )


def _are_equal(one: str, other: str) -> bool:
    digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in (one, other)]
    return hmac.compare_digest(*digests)
