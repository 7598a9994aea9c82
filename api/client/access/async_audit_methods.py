"""Methods of the asynchronous client for audit records."""

from collections.abc import AsyncIterator

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import audit
from regroup.api.schemas.audit import AuditChain, AuditRecord
from regroup.service.domain.audit import ChainEnd, ChainReport, ChainVerifier


class AsyncAuditMethods:
    """The part of the client for audit records."""

    _transport: AsyncTransport

    def audit(
        self,
        *,
        project: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        object: str | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
    ) -> AsyncIterator[AuditRecord]:
        """List changes that identities requested, newest first.

        Args:
            project: Changes in this project. Default: in all that you administer.
            actor: Changes by this identity.
            action: Noun and verb, e.g. `jobs.cancel`.
            object: Id or name of the changed object.
            since_s: Changes from this time on, in Unix seconds.
            until_s: Changes before this time, in Unix seconds.
        """
        filters = audit.filters_of(project, actor, action, object, since_s, until_s)
        return self._transport.pages(audit.records(filters))

    def audit_export(self, *, project: str | None = None, after: int = 0) -> AsyncIterator[AuditRecord]:
        """List sealed records above a position of the chain, oldest first.

        A record is sealed about a second after its change.

        Args:
            project: Changes in this project. Default: in all that you administer.
            after: Position of the last record that you have.
        """
        return self._transport.pages(audit.sealed_records({"project": project}, after))

    async def audit_chain(self) -> AuditChain:
        """Return the ends of the chain. Note the digest of the end in another place, for a later verification."""
        return await self._transport.run(audit.chain())

    async def verify_audit(self, noted: ChainEnd | None = None) -> ChainReport:
        """Verify all records of the server: none was changed, and none is missing.

        Args:
            noted: A point that you noted earlier. The chain must contain it.
        """
        start, end = audit.ends_of(await self.audit_chain())
        verifier = ChainVerifier(start, noted)
        async for record in self.audit_export(after=start.position):
            verifier.add(audit.to_sealed(record))
        return verifier.report(end)
