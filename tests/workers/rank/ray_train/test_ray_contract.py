"""The private parts of ray that the adapter depends on."""

import inspect
import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import ray
import ray.train
import ray.train.collective
import ray.train.torch
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction
from ray.runtime_context import RuntimeContext
from ray.train.v2._internal import util
from ray.train.v2._internal.execution import context as execution_context
from ray.train.v2._internal.execution import train_fn_utils
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.storage import StorageContext, delete_fs_path
from ray.train.v2._internal.execution.training_report import _TrainingReport
from ray.train.v2.api.context import TrainContext
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import regroup.workers.rank.ray_train.fit as adapter
from regroup.workers.rank.ray_train import checkpoints, session

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SERVED = {
    "ray.train": {
        "get_all_reported_checkpoints", "get_checkpoint", "get_context", "get_preemption_info", "report",
        # values, used as they are
        "BackendConfig", "Checkpoint", "CheckpointConfig", "CheckpointConsistencyMode", "CheckpointUploadMode",
        "DataConfig", "FailureConfig", "LoggingConfig", "PreemptionInfo", "ReportedCheckpoint",
        "ReportedCheckpointStatus", "Result", "RunConfig", "ScalingConfig", "SyncConfig", "TRAIN_DATASET_KEY",
        "TrainContext", "UserCallback",
        # raised by Ray's controller, never here
        "ControllerError", "NCCLHangError", "PreemptionError", "TrainingFailedError", "WorkerGroupError",
    },
    "ray.train.torch": {
        "TorchCheckpoint", "TorchConfig", "TorchTrainer", "enable_reproducibility", "get_device", "get_devices",
        "prepare_data_loader", "prepare_model",
    },
    "ray.train.collective": {"barrier", "broadcast_from_rank_zero"},
}  # fmt: skip
REFUSED = {
    "ray.train": {"get_dataset_shard", "ValidationConfig", "ValidationFn", "ValidationTaskConfig"},
    "ray.train.torch": {"accelerate", "backward", "prepare_optimizer"},  # by Ray Train v2 itself
    "ray.train.collective": set[str](),
}


@pytest.mark.parametrize(
    "module", [ray.train, ray.train.torch, ray.train.collective], ids=lambda module: module.__name__
)
def test_every_public_name_is_served_or_refused_on_purpose(module: Any) -> None:
    listed = SERVED[module.__name__] | REFUSED[module.__name__]
    public = set(module.__all__) | {name for name in vars(module) if name in listed}
    assert public == listed, "decide for each new name whether a job of kind ray_train serves it"


def test_every_function_of_a_loop_is_ours() -> None:
    theirs = train_fn_utils.TrainFnUtils.__abstractmethods__
    assert theirs <= set(vars(session.Functions))
    for name in theirs:
        assert parameters(getattr(session.Functions, name)) == parameters(getattr(train_fn_utils.TrainFnUtils, name))
    assert TrainContext.__abstractmethods__ <= set(vars(session._Context))


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (DataParallelTrainer.fit, ["self"]),
        (DataParallelTrainer._get_train_func, ["self"]),
        (RemoteFunction._remote, None),
        (ActorClass._remote, None),
        (RuntimeContext.get_job_id, ["self"]),
        (ray.init, None),
        (ray.train.RunConfig.__post_init__, ["self"]),
        (ray.train.Result._from_checkpoint_manager, ["checkpoint_manager", "storage_context", "error"]),
        (util.construct_train_func, ["train_func", "config", "train_func_context", "fn_arg_name"]),
        (train_fn_utils.set_train_fn_utils, ["train_fn_utils"]),
        (execution_context.is_managed_checkpoint, ["storage_context", "checkpoint"]),
        (delete_fs_path, ["fs", "fs_path"]),
        (_TrainingReport, ["checkpoint", "metrics", "validation"]),
        (CheckpointManager, ["checkpoint_config", "storage_context"]),
        (CheckpointManager.after_report, ["self", "training_report", "metrics"]),
        (CheckpointManager._write_state_to_storage, ["self"]),
        (CheckpointManager._save_state, ["self"]),
        (CheckpointManager._notify, ["self"]),
        (StorageContext.persist_current_checkpoint, ["self", "checkpoint", "checkpoint_dir_name"]),
        (StorageContext.make_default_checkpoint_dir_name, []),
        (StorageContext.build_checkpoint_path_from_name, ["self", "checkpoint_name"]),
        (ray.train.UserCallback.after_report, ["self", "run_context", "metrics", "checkpoint"]),
        (ray.train.UserCallback.after_exception, ["self", "run_context", "worker_exceptions"]),
    ],
)  # fmt: skip
def test_what_the_adapter_calls_or_replaces_has_the_shape_it_knows(function: Any, expected: list[str] | None) -> None:
    assert callable(function)
    if expected is not None:
        assert parameters(function) == expected


def test_values_have_the_fields_it_reads() -> None:
    names = {each.name for each in fields(ray.train.RunConfig)}
    assert {"name", "storage_path", "callbacks", "worker_runtime_env", "failure_config", "logging_config"} <= names
    assert {"num_workers", "use_gpu", "resources_per_worker"} <= {each.name for each in fields(ray.train.ScalingConfig)}
    assert {"backend", "timeout_s"} <= {each.name for each in fields(ray.train.torch.TorchConfig)}
    trainer = ray.train.torch.TorchTrainer(print)
    for name in (
        "run_config",
        "scaling_config",
        "backend_config",
        "datasets",
        "validation_config",
        "train_run_context",
    ):
        assert hasattr(trainer, name)
    assert trainer.run_config.callbacks == [] and trainer.run_config.worker_runtime_env == {}
    manager = inspect.getsource(CheckpointManager.__init__) + inspect.getsource(CheckpointManager.__mro__[1].__init__)
    assert "self._storage_context" in manager and "self._checkpoint_results" in manager
    assert {"latest_checkpoint_result", "best_checkpoint_results"} <= set(dir(checkpoints.CommittedCheckpoints))


def test_no_call_of_ray_starts_a_cluster() -> None:
    assert all(hasattr(ray, name) for name in adapter.UNAVAILABLE)
    program = "import regroup.workers.rank.ray_train.fit, ray, os\ntry: ray.get_gpu_ids()\n"
    program += "except ray.exceptions.RaySystemError: print(ray.is_initialized(), len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", program], env=ONE_THREAD, capture_output=True, text=True, check=True)
    assert done.stdout == "False 1\n", "and none that keeps a process from being forked starts a thread"
