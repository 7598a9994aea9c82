"""Senders of requests, for tests of use cases."""

from regroup.service.domain.identity import Identity, IdentityKind, Role
from regroup.service.operations.access.authorization import Sender

OWNER = Sender(Identity("user", IdentityKind.OWNER, everywhere=Role.ADMIN, is_operator=True), "127.0.0.1")
"""The owner of the server, who may do everything."""
