"""Methods of the asynchronous client for secrets."""

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import secrets
from regroup.api.schemas.secrets import Reencryption, Secret


class AsyncSecretMethods:
    """The part of the client for secrets."""

    _transport: AsyncTransport

    async def secrets(self, project: str) -> list[Secret]:
        """List the secrets of a project, by name. No answer contains a value."""
        return await self._transport.run(secrets.secrets(project))

    async def secret(self, project: str, name: str) -> Secret:
        """Return a secret without its value."""
        return await self._transport.run(secrets.secret(project, name))

    async def set_secret(self, project: str, name: str, value: str) -> Secret:
        """Create a secret, or replace its value. Jobs get it with the next generation of their ranks.

        Args:
            project: Project whose jobs may use it.
            name: Name, for example `hf-token`.
            value: Text of 4 characters to 16 KiB.
        """
        return await self._transport.run(secrets.set_secret(project, name, value))

    async def delete_secret(self, project: str, name: str) -> None:
        """Delete a secret. Ranks that run keep its value."""
        return await self._transport.run(secrets.delete_secret(project, name))

    async def reencrypt_secrets(self) -> Reencryption:
        """Encrypt the stored secrets of all projects and hooks with the current key of the server."""
        return await self._transport.run(secrets.reencrypt_secrets(self._transport.is_trial))
