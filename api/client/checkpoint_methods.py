"""Methods of the blocking client for checkpoints."""

from regroup.api.client.connection.transport import SyncTransport
from regroup.api.client.operations import job_queries
from regroup.api.schemas import history


class CheckpointMethods:
    """The part of the client for checkpoints in durable storage."""

    _transport: SyncTransport

    def checkpoints(self, job: str, *, removed: bool = False, project: str = "default") -> list[history.Checkpoint]:
        """List the checkpoints of a job by step; with `removed`, also those no longer in storage."""
        return self._transport.run(job_queries.checkpoints(job, project, removed=removed))

    def pin_checkpoint(self, job: str, step: int, *, project: str = "default") -> history.Checkpoint:
        """Exempt a checkpoint from the retention policy."""
        return self._transport.run(job_queries.pin_checkpoint(job, step, project))

    def unpin_checkpoint(self, job: str, step: int, *, project: str = "default") -> history.Checkpoint:
        """Make a checkpoint subject to the retention policy again."""
        return self._transport.run(job_queries.unpin_checkpoint(job, step, project))

    def checkpoint_files(self, job: str, step: int, *, project: str = "default") -> history.CheckpointFiles:
        """Return the files of a checkpoint, with commands that copy it and load it."""
        return self._transport.run(job_queries.checkpoint_files(job, step, project))

    def verify_checkpoint(
        self, job: str, step: int, *, contents: bool = True, project: str = "default"
    ) -> history.CheckpointVerification:
        """Compare the files of a checkpoint with its manifest.

        Args:
            contents: Compare the checksums of the contents, too. False: only the sizes of the files.
        """
        return self._transport.run(job_queries.verify_checkpoint(job, step, project, contents=contents))
