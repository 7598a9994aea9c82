"""Authentication of requests: the private token of the server's owner, or a token of an identity."""

import hashlib
import hmac

from regroup.service.domain.errors import UnauthorizedError
from regroup.service.domain.identity import Identity, IdentityKind, Role
from regroup.service.local.api_token import ApiToken
from regroup.service.operations.authentication import Authentication


class Authenticator:
    """Finds the identity of a request.

    Args:
        token: the owner's token. Its file proves the operating-system user who runs the server.
        authentication: tokens of all other identities.
    """

    def __init__(self, token: ApiToken, authentication: Authentication) -> None:
        self._token, self._authentication = token, authentication
        self._owner = Identity(token.owner, IdentityKind.OWNER, everywhere=Role.ADMIN, is_operator=True)

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
