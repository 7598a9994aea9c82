"""The committed checkpoints, in Ray Train's own file format, so that Ray Train and regroup can continue each other's
runs."""

import json
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray.train
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.training_report import _TrainingReport  # pyright: ignore[reportPrivateUsage]

_UNFINISHED = ".regroup-unfinished-checkpoint"
"""File in the run's folder during an upload. Contains the name of the checkpoint's folder."""
_STEPS = ".regroup-steps.json"
"""File in the run's folder with the step count of the newest checkpoint."""


class CommittedCheckpoints(CheckpointManager):
    """The committed checkpoints, as Ray Train's manager decides and writes them. Its file is replaced atomically."""

    def __init__(self, config: Any, storage: StorageContext) -> None:
        super().__init__(checkpoint_config=config, storage_context=storage)
        self._files = storage.storage_filesystem
        self._marker, self._steps_path = (f"{storage.experiment_fs_path}/{name}" for name in (_UNFINISHED, _STEPS))
        if self._files.get_file_info(self._marker).is_file:
            with self._files.open_input_stream(self._marker) as file:
                self._discard(file.read().decode())

    @property
    def state(self) -> tuple[Any, list[ray.train.ReportedCheckpoint]]:
        """The newest checkpoint, and all retained ones with their metrics."""
        newest = self.latest_checkpoint_result
        status = ray.train.ReportedCheckpointStatus.COMMITTED
        kept = [ray.train.ReportedCheckpoint(each.checkpoint, each.metrics, status) for each in self._kept]
        return (newest.checkpoint if newest else None), kept

    def begin(self, name: str) -> None:
        """Mark the checkpoint as unfinished before its files are written."""
        if name in self._names():
            raise ValueError(f"checkpoint_dir_name {name!r} is already in use: give each checkpoint its own name")
        write_whole(self._files, self._marker, name.encode())

    @property
    def steps(self) -> int | None:
        """Optimizer steps of the newest checkpoint; None if regroup did not save it."""
        newest: Any = self.latest_checkpoint_result
        if newest is None or not self._files.get_file_info(self._steps_path).is_file:
            return None
        with self._files.open_input_stream(self._steps_path) as file:
            return json.loads(file.read()).get(Path(newest.checkpoint.path).name)

    def commit(self, checkpoint: Any, metrics: list[dict[str, Any]], steps: int) -> None:
        """Commit the checkpoint after all its files are written, and delete surplus ones."""
        if checkpoint is not None:
            write_whole(self._files, self._steps_path, json.dumps({Path(checkpoint.path).name: steps}).encode())
        self.after_report(_TrainingReport(checkpoint=checkpoint, metrics=metrics[0], validation=False), metrics)
        if checkpoint is not None and self._files.get_file_info(self._marker).is_file:
            self._files.delete_file(self._marker)

    def _discard(self, name: str) -> None:
        path = self._storage_context.build_checkpoint_path_from_name(name)
        if name not in self._names() and self._files.get_file_info(path).type is pyarrow.fs.FileType.Directory:
            self._files.delete_dir(path)
        self._files.delete_file(self._marker)

    def _names(self) -> set[str]:
        return {Path(each.checkpoint.path).name for each in self._kept}

    @property
    def _kept(self) -> list[Any]:
        return self._checkpoint_results

    def _write_state_to_storage(self) -> None:
        path = self._storage_context.checkpoint_manager_snapshot_path
        write_whole(self._storage_context.storage_filesystem, path, self._save_state().encode())

    def _notify(self) -> None:
        """Do nothing: ranks continue when rank 0 broadcasts the state."""


def write_whole(files: Any, path: str, data: bytes) -> None:
    """Write a file atomically: a reader of `path` finds the old or the new content. Object stores guarantee this
    themselves."""
    is_local = isinstance(files, pyarrow.fs.LocalFileSystem)
    with files.open_output_stream(f"{path}.unfinished" if is_local else path) as file:
        file.write(data)
    if is_local:
        files.move(f"{path}.unfinished", path)
