"""Methods of the blocking client for secrets."""

from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.operations import secrets
from regroup.api.schemas.secrets import Reencryption, Secret


class SecretMethods:
    """The part of the client for secrets."""

    _transport: SyncTransport

    def secrets(self, project: str) -> list[Secret]:
        """List the secrets of a project, by name. No answer contains a value."""
        return self._transport.run(secrets.secrets(project))

    def secret(self, project: str, name: str) -> Secret:
        """Return a secret without its value."""
        return self._transport.run(secrets.secret(project, name))

    def set_secret(self, project: str, name: str, value: str) -> Secret:
        """Create a secret, or replace its value. Jobs get it with the next generation of their ranks.

        Args:
            project: Project whose jobs may use it.
            name: Name, for example `hf-token`.
            value: Text of 4 characters to 16 KiB.
        """
        return self._transport.run(secrets.set_secret(project, name, value))

    def delete_secret(self, project: str, name: str) -> None:
        """Delete a secret. Ranks that run keep its value."""
        return self._transport.run(secrets.delete_secret(project, name))

    def reencrypt_secrets(self) -> Reencryption:
        """Encrypt the stored secrets of all projects and hooks with the current key of the server."""
        return self._transport.run(secrets.reencrypt_secrets(self._transport.is_trial))
