"""A program that calls Ray Train, on regroup's ranks.

As under Ray Train, the program is the driver and runs once: on rank 0. The argument of `.fit()` is pickled as Ray
would pickle it. Every rank, including rank 0, calls the training loop of the copy.
"""

import contextlib
import datetime
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow.fs
import ray
import ray.cloudpickle as cloudpickle
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction
from ray.runtime_context import RuntimeContext
from ray.train.backend import BackendConfig
from ray.train.v2._internal import util as ray_util
from ray.train.v2._internal.constants import is_v2_enabled
from ray.train.v2._internal.execution.train_fn_utils import set_train_fn_utils
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from regroup.workers.contract.error_classes import InputError, LoopFailed
from regroup.workers.contract.messages import Join
from regroup.workers.contract.progress_page import ProgressPage
from regroup.workers.contract.rank_config import ScriptConfig
from regroup.workers.rank import own_process
from regroup.workers.rank.agent_channel import Channel
from regroup.workers.rank.ray_train.checkpoints import CommittedCheckpoints, write_whole
from regroup.workers.rank.ray_train.options import TrainerOptions, budget_note, unsupported_option
from regroup.workers.rank.ray_train.session import Functions, Worker
from regroup.workers.rank.step_counter import StepCounter
from regroup.workers.rank.store_collectives import StoreCollectives

UNAVAILABLE = (
    "get", "put", "wait", "cancel", "kill", "get_actor", "nodes", "cluster_resources", "available_resources",
)  # fmt: skip
"""Functions of `ray` that need a cluster."""
_BACKENDS = BackendConfig, ray.train.torch.TorchConfig


def run(join: Join, channel: Channel, progress: ProgressPage, steps: StepCounter, program: Callable[[], None]) -> None:
    """Run the program on rank 0, and its training loops on all ranks.

    Raises:
        InputError: the program needs something that this job does not provide.
        LoopFailed: wraps an exception of the training loop.
    """
    if not is_v2_enabled():
        raise InputError("kind: ray_train serves Ray Train v2: leave out RAY_TRAIN_V2_ENABLED=0")
    ranks = _Ranks(Worker(join, channel, progress, steps, StoreCollectives(join, "ray-train")))
    _replace_cluster_functions(join)
    if join.rank:
        _replace(DataParallelTrainer, "fit", _nested)
        ranks.run_loops()
        return

    def fit(trainer: Any) -> ray.train.Result:
        return ranks.fit(trainer)

    _set_default_names(join)
    _replace(DataParallelTrainer, "fit", fit)
    try:
        program()
    except SystemExit as left:
        if not left.code and not own_process.is_forked():
            ranks.stop_workers()
        raise
    if not own_process.is_forked():
        ranks.stop_workers()


def _replace_cluster_functions(join: Join) -> None:
    def job_id(context: Any) -> str:
        return join.job_id

    for name in UNAVAILABLE:
        _replace(ray, name, _unavailable(f"ray.{name}()"))
    _replace(RemoteFunction, "_remote", _unavailable("A remote function"))
    _replace(ActorClass, "_remote", _unavailable("An actor"))
    _replace(ray, "init", _init)
    _replace(RuntimeContext, "get_job_id", job_id)


def _replace(owner: Any, name: str, value: Callable[..., Any]) -> None:
    assert hasattr(owner, name), f"another ray than the one this was written for: {owner} has no {name}"
    setattr(owner, name, value)


def _init(*args: Any, **kwargs: Any) -> Any:
    """Do nothing. Programs call `ray.init()` because Ray Train needs it; regroup does not."""
    return contextlib.nullcontext()


def _unavailable(what: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"{what} needs a Ray cluster. This program runs on the ranks of a job of kind ray_train, which are in "
            "none: `.fit()` and ray.train work; tasks, actors and objects do not"
        )

    return refuse


def _nested(trainer: Any) -> NoReturn:
    raise RuntimeError("`.fit()` inside a training loop: a job of kind ray_train runs one loop at a time")


def _set_default_names(join: Join) -> None:
    """Give runs without a name or storage path the same ones in every generation."""
    original, unnamed = ray.train.RunConfig.__post_init__, iter(range(1, sys.maxsize))

    def post_init(config: Any) -> None:
        if config.name is None:
            number = next(unnamed)
            config.name = f"ray_train_run-{join.job_id}" + (f"-{number}" if number > 1 else "")
        if config.storage_path is None:
            config.storage_path = _script(join).storage_uri
        original(config)

    _replace(ray.train.RunConfig, "__post_init__", post_init)


class _Ranks:
    """The ranks of this generation as Ray Train's workers, from the view of one rank."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._join, self._collectives = worker, worker.join, worker.collectives
        self._fits = 0
        self._initial_rng_state = torch.get_rng_state()

    def run_loops(self) -> None:
        """Run each training loop of the program until it ends. Called on all ranks except 0."""
        while order := self._collectives.broadcast(b""):
            self._train(order, None)

    def stop_workers(self) -> None:
        """Let the other ranks end, because the program has ended. Called on rank 0."""
        self._collectives.broadcast(b"")

    def fit(self, trainer: Any) -> ray.train.Result:
        """Train `trainer` on all ranks. Called on rank 0.

        Raises:
            LoopFailed: wraps an exception of the training loop, or an InputError if the job does not support an option.
        """
        options = _options_of(trainer)
        if why := unsupported_option(options, self._join.world_size, self._join.device):
            raise LoopFailed(InputError(why))
        if note := budget_note(options, _script(self._join).max_restarts):
            _print_note(note)
        self._restore_names(trainer.run_config)
        storage = trainer.run_config.storage_context
        committed = CommittedCheckpoints(trainer.run_config.checkpoint_config, storage)
        order = cloudpickle.dumps((trainer, *committed.state, committed.steps))
        value = self._train(self._collectives.broadcast(order), committed)
        result = ray.train.Result._from_checkpoint_manager(committed, storage)  # pyright: ignore[reportPrivateUsage]
        result.return_value = value
        return result

    def _restore_names(self, run_config: Any) -> None:
        """Restore the name and storage path of the first generation: a program may derive them from the date."""
        try:
            files, folder = pyarrow.fs.FileSystem.from_uri(_script(self._join).storage_uri)
            files.create_dir(folder)
            path = f"{folder}/fit-{self._fits + 1}.json"
            if files.get_file_info(path).is_file:
                with files.open_input_stream(path) as file:
                    names = json.loads(file.read())
                run_config.name, run_config.storage_path = names["name"], names["storage_path"]
            else:
                names = {"name": run_config.name, "storage_path": run_config.storage_path}
                write_whole(files, path, json.dumps(names).encode())
        except OSError as error:
            _print_note(
                f"cannot save the run's name in the job's storage ({error}): keep RunConfig(name, storage_path) fixed"
            )

    def _train(self, order: bytes, committed: CommittedCheckpoints | None) -> Any:
        """Run the training loop on this rank, within a process group."""
        self._fits += 1
        trainer, *found = cloudpickle.loads(order)
        run_config = trainer.run_config
        logging.getLogger("ray.train").setLevel(run_config.logging_config.log_level)
        os.environ.update(run_config.worker_runtime_env.get("env_vars") or {})
        set_train_fn_utils(Functions(self._worker, trainer, committed, *found))
        _set_device(self._join, trainer.scaling_config.use_gpu)
        if isinstance(trainer.backend_config, ray.train.torch.TorchConfig):
            _form_process_group(self._join, trainer.backend_config, self._fits)
        driver_rng_state = torch.get_rng_state()
        torch.set_rng_state(self._initial_rng_state)  # a Ray Train worker is a separate process from the driver
        try:
            value = trainer._get_train_func()()
        except (Exception, SystemExit) as error:
            for callback in run_config.callbacks:
                callback.after_exception(trainer.train_run_context, {self._join.rank: error})
            raise LoopFailed(_without_outer_frames(error)) from None
        self._collectives.barrier()  # close no socket while a peer still reads from it
        if dist.is_initialized():
            dist.destroy_process_group()
        torch.set_rng_state(driver_rng_state)
        set_train_fn_utils(None)
        return value


def _options_of(trainer: Any) -> TrainerOptions:
    scaling, run_config, backend = trainer.scaling_config, trainer.run_config, trainer.backend_config
    callbacks = [type(each).__name__ for each in run_config.callbacks if not isinstance(each, ray.train.UserCallback)]
    return TrainerOptions(
        workers=(scaling.min_workers, scaling.max_workers),
        use_gpu=bool(scaling.use_gpu),
        gpus=float((scaling.resources_per_worker or {}).get("GPU", int(scaling.use_gpu))),
        backend="" if type(backend) in _BACKENDS else type(backend).__name__,
        datasets=tuple(trainer.datasets),
        callbacks=tuple(callbacks),
        environment=tuple(sorted(set(run_config.worker_runtime_env) - {"env_vars"})),
        has_validation=trainer.validation_config is not None,
        max_failures=run_config.failure_config.max_failures,
    )


def _set_device(join: Join, use_gpu: bool) -> None:
    if use_gpu:
        torch.cuda.set_device(join.local_rank)
    os.environ["NODE_RANK"] = str(join.node_rank)
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(ray.train.torch.get_device())


def _form_process_group(join: Join, config: Any, fit: int) -> None:
    timeout = datetime.timedelta(seconds=config.timeout_s)
    store = dist.TCPStore(join.store_host, join.store_port, is_master=False, timeout=timeout)
    name = f"ray-train-fit-{fit}-{join.generation}"  # a second group must not meet the keys of the first
    dist.init_process_group(
        config.backend,
        store=dist.PrefixStore(name, store),
        rank=join.rank,
        world_size=join.world_size,
        timeout=timeout,
    )


def _without_outer_frames(error: BaseException) -> BaseException:
    """Return the error without the frames outside the training loop."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next and frame.tb_frame.f_code.co_filename in (__file__, ray_util.__file__):
        frame = frame.tb_next
    return error.with_traceback(frame)


def _print_note(text: str) -> None:
    print(f"regroup: {text}", file=sys.stderr, flush=True)


def _script(join: Join) -> ScriptConfig:
    assert join.config.script is not None, "only programs call Ray Train"
    return join.config.script
