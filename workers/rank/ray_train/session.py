"""The functions of `ray.train` inside a training loop."""

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import ray.cloudpickle as cloudpickle
import ray.train
from ray.air._internal.torch_utils import contains_tensor
from ray.train.v2._internal.execution.context import is_managed_checkpoint
from ray.train.v2._internal.execution.storage import StorageContext, delete_fs_path
from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils
from ray.train.v2.api.context import TrainContext

from regroup.workers.contract.messages import Join, Phase, Report
from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.rank.agent_channel import Channel
from regroup.workers.rank.ray_train.checkpoints import CommittedCheckpoints
from regroup.workers.rank.ray_train.options import NO_DATASETS
from regroup.workers.rank.reported_metrics import numbers
from regroup.workers.rank.step_counter import StepCounter
from regroup.workers.rank.store_collectives import StoreCollectives

_UPLOAD_NEEDED = ray.train.CheckpointUploadMode.SYNC, ray.train.CheckpointUploadMode.ASYNC


@dataclass(frozen=True)
class Worker:
    """One rank of this generation, as Ray Train's worker."""

    join: Join
    channel: Channel
    progress: ProgressPage
    steps: StepCounter
    collectives: StoreCollectives

    def send_report(self, metrics: dict[str, Any]) -> None:
        """Add the reported metrics to the newest step's row."""
        self.channel.send(Report(self.join.generation, self.steps.step, time.time(), numbers(metrics)))

    @contextlib.contextmanager
    def checkpoint_phase(self) -> Generator[None]:
        """Publish the phase `checkpoint` during the block."""
        step, phase = self.progress.read()
        self.progress.set(step, Phase.CHECKPOINT)
        yield
        self.progress.set(step, phase)


class Functions(TrainFnUtils):
    """Serves one training loop on one rank. Only rank 0 has `committed`."""

    def __init__(
        self,
        worker: Worker,
        trainer: Any,
        committed: CommittedCheckpoints | None,
        checkpoint: Any,
        reported: list[Any],
        steps: int | None,
    ) -> None:
        self._worker, self._collectives, self._trainer, self._committed = worker, worker.collectives, trainer, committed
        self._checkpoint, self._reported, self._steps = checkpoint, reported, steps
        self._storage: StorageContext = trainer.run_config.storage_context
        self._context = _Context(worker.join, trainer.run_config)

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Any = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: Any = ray.train.CheckpointUploadMode.SYNC,
        delete_local_checkpoint_after_upload: bool | None = None,
        checkpoint_upload_fn: Callable[[Any, str], Any] | None = None,
        validation: Any = False,
    ) -> None:
        """Report metrics and a checkpoint. Return on every rank when the checkpoint of all ranks is committed."""
        if validation:
            raise ValueError("validation runs as a Ray task, and a job of kind ray_train is in no Ray cluster")
        if contains_tensor(metrics):
            raise ValueError(f"metrics are plain numbers, not tensors (`.item()`): {list(metrics)}")
        store: Any = self._storage
        upload: Callable[[Any, str], Any] = checkpoint_upload_fn or store.persist_current_checkpoint
        needs_upload = checkpoint is not None and checkpoint_upload_mode in _UPLOAD_NEEDED
        name = checkpoint_dir_name or self._storage.make_default_checkpoint_dir_name()
        if self._committed is not None and needs_upload:
            self._committed.begin(name)
        name = self._collectives.broadcast(name.encode()).decode()
        with self._worker.checkpoint_phase():
            persisted: Any = checkpoint
            if needs_upload:
                persisted = upload(checkpoint, name)
                if delete_local_checkpoint_after_upload:
                    self._delete(checkpoint)
            if persisted is not None and not is_managed_checkpoint(self._storage, persisted):
                raise ValueError(f"{persisted} is not in the run's folder {self._storage.experiment_fs_path}")
            gathered = self._collectives.gather(cloudpickle.dumps((metrics, persisted)))
            state = self._commit(gathered) if self._committed is not None else b""
            self._checkpoint, self._reported = cloudpickle.loads(self._collectives.broadcast(state))

    def get_checkpoint(self) -> Any:
        if self._steps is not None:
            self._worker.steps.set_loaded_steps(self._steps)
        return self._checkpoint

    def get_all_reported_checkpoints(self, consistency_mode: Any = None, timeout_s: float | None = None) -> list[Any]:
        return list(self._reported)

    def get_dataset_shard(self, dataset_info: Any) -> NoReturn:
        raise RuntimeError(NO_DATASETS)

    def get_context(self) -> TrainContext:
        return self._context

    def get_preemption_info(self) -> None:
        return None

    def is_distributed(self) -> bool:
        """Return False: ray then uses the device that is already set, and not one that a cluster assigned."""
        return False

    def barrier(self) -> None:
        self._collectives.barrier()

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        value = cloudpickle.loads(self._collectives.broadcast(cloudpickle.dumps(data)))
        self._collectives.barrier()
        return value

    def _delete(self, checkpoint: Any) -> None:
        if Path(self._storage.experiment_fs_path).is_relative_to(checkpoint.path):
            raise ValueError(f"will not delete {checkpoint.path}: the run's folder is in it")
        delete_fs_path(checkpoint.filesystem, checkpoint.path)

    def _commit(self, gathered: list[bytes]) -> bytes:
        assert self._committed is not None, "rank 0 commits"
        reports = [cloudpickle.loads(each) for each in gathered]
        metrics, persisted = [each for each, _ in reports], [each for _, each in reports if each is not None]
        if len(paths := {each.path for each in persisted}) > 1:
            raise ValueError(f"the ranks saved one checkpoint in different folders: {sorted(paths)}")
        newest = persisted[0] if persisted else None
        self._committed.commit(newest, metrics, self._worker.steps.step)
        self._worker.send_report(metrics[0])
        for callback in self._trainer.run_config.callbacks:
            callback.after_report(self._trainer.train_run_context, metrics, newest)
        return cloudpickle.dumps((newest or self._checkpoint, self._committed.state[1]))


class _Context(TrainContext):
    """The place of this rank; the getters that Ray Train v2 has taken out of service stay so."""

    def __init__(self, join: Join, run_config: Any) -> None:
        self._join, self._run_config = join, run_config

    def get_experiment_name(self) -> str:
        return self._run_config.name

    def get_world_size(self) -> int:
        return self._join.world_size

    def get_world_rank(self) -> int:
        return self._join.rank

    def get_local_rank(self) -> int:
        return self._join.local_rank

    def get_local_world_size(self) -> int:
        return self._join.local_world_size

    def get_node_rank(self) -> int:
        return self._join.node_rank

    def get_storage(self) -> Any:
        return self._run_config.storage_context
