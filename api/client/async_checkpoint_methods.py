"""Methods of the asynchronous client for checkpoints."""

from regroup.api.client.connection.transport import AsyncTransport
from regroup.api.client.operations import job_queries
from regroup.api.schemas import history


class AsyncCheckpointMethods:
    """The part of the client for checkpoints in durable storage."""

    _transport: AsyncTransport

    async def checkpoints(
        self, job: str, *, removed: bool = False, project: str = "default"
    ) -> list[history.Checkpoint]:
        """List the checkpoints of a job by step; with `removed`, also those no longer in storage."""
        return await self._transport.run(job_queries.checkpoints(job, project, removed=removed))

    async def pin_checkpoint(self, job: str, step: int, *, project: str = "default") -> history.Checkpoint:
        """Exempt a checkpoint from the retention policy."""
        return await self._transport.run(job_queries.pin_checkpoint(job, step, project))

    async def unpin_checkpoint(self, job: str, step: int, *, project: str = "default") -> history.Checkpoint:
        """Make a checkpoint subject to the retention policy again."""
        return await self._transport.run(job_queries.unpin_checkpoint(job, step, project))

    async def checkpoint_files(self, job: str, step: int, *, project: str = "default") -> history.CheckpointFiles:
        """Return the files of a checkpoint, with commands that copy it and load it."""
        return await self._transport.run(job_queries.checkpoint_files(job, step, project))

    async def verify_checkpoint(
        self, job: str, step: int, *, contents: bool = True, project: str = "default"
    ) -> history.CheckpointVerification:
        """Compare the files of a checkpoint with its manifest.

        Args:
            contents: Compare the checksums of the contents, too. False: only the sizes of the files.
        """
        return await self._transport.run(job_queries.verify_checkpoint(job, step, project, contents=contents))
