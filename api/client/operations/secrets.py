"""Requests about the secrets of projects, and about their key."""

from regroup.api.client.connection.requests import Operation, Request, no_content, send, to_model, url_path
from regroup.api.schemas.secrets import Reencryption, Secret, SecretList


def secrets(project: str) -> Request[list[Secret]]:
    """List the secrets of a project."""
    return Request("GET", _path(project), lambda response: to_model(SecretList)(response).secrets)


def secret(project: str, name: str) -> Request[Secret]:
    """Get a secret without its value."""
    return Request("GET", _path(project, name), to_model(Secret))


def set_secret(project: str, name: str, value: str) -> Request[Secret]:
    """Create a secret, or replace its value."""
    return Request("PUT", _path(project, name), to_model(Secret), body={"value": value})


def delete_secret(project: str, name: str) -> Request[None]:
    """Delete a secret."""
    return Request("DELETE", _path(project, name), no_content)


def reencrypt_secrets(is_trial: bool = False) -> Operation[Reencryption]:
    """Encrypt all stored secrets with the current key: request after request. A trial sends only one."""
    encrypted = 0
    while True:
        found = yield from send(Request("POST", url_path("secrets", "reencrypt"), to_model(Reencryption)))
        encrypted += found.encrypted
        if found.is_complete or not found.encrypted or is_trial:
            return found.model_copy(update={"encrypted": encrypted})


def _path(project: str, *parts: str) -> str:
    return url_path("projects", project, "secrets", *parts)
