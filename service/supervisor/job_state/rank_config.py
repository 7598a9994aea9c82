"""Build the configuration of a job's ranks from its spec."""

from regroup.service.domain.detectors import Detector
from regroup.service.domain.hardware import peak_flops
from regroup.service.spec.faults import Fault
from regroup.service.spec.job import JobSpec
from regroup.service.spec.training import Training
from regroup.service.spec.workload import FunctionWorkload, ProgramWorkload, RayTrainWorkload
from regroup.workers.contract.rank_config import (
    CheckpointConfig,
    FaultConfig,
    FaultPoint,
    LossSpikeAction,
    LossSpikeConfig,
    NonFiniteAction,
    NonFiniteConfig,
    OptimizerConfig,
    ParallelConfig,
    RankConfig,
    ScheduleConfig,
    ScriptConfig,
    SnapshotConfig,
    TrainingConfig,
)


def rank_config(spec: JobSpec, *, micro_batch: int | None = None, storage_uri: str = "") -> RankConfig:
    """Return the configuration of the job's ranks.

    Args:
        spec: the job.
        micro_batch: samples of a micro-batch at this generation's layout; the spec's if None.
        storage_uri: the job's folder in durable storage, for programs that call Ray Train.
    """
    if isinstance(spec.workload, ProgramWorkload):
        script = _script(spec, spec.workload, storage_uri)
        return RankConfig(script=script, faults=_faults(spec), verifies_restart=spec.recovery.verifies_restart)
    assert spec.training is not None, "the spec requires it for every other kind of workload"
    return RankConfig(
        training=_training(spec.training, spec.layout.dp.target, micro_batch),
        parallel=ParallelConfig(data_parallel=spec.layout.data_parallel, **spec.layout.strategy()),
        model={} if isinstance(spec.workload, FunctionWorkload) else spec.workload.model.model_dump(mode="json"),
        function=spec.workload.function if isinstance(spec.workload, FunctionWorkload) else "",
        args=spec.model_dump(mode="json", include={"args"})["args"],
        seed=spec.seed,
        is_deterministic=spec.determinism == "strict",
        snapshot=SnapshotConfig(spec.snapshot.every_steps),
        checkpoint=CheckpointConfig(spec.checkpoint.every_steps, spec.checkpoint.every),
        non_finite=_non_finite(spec),
        loss_spike=_loss_spike(spec),
        verify_replicas=spec.verifies_replicas and Detector.REPLICA_MISMATCH not in spec.disable_detectors,
        verifies_restart=spec.recovery.verifies_restart,
        faults=_faults(spec),
        device_flops=peak_flops(spec.training.precision) if spec.resources.device == "cuda" else {},
    )


def _script(spec: JobSpec, workload: ProgramWorkload, storage_uri: str) -> ScriptConfig:
    calls_ray_train = isinstance(workload, RayTrainWorkload)
    return ScriptConfig(
        kind="ray_train" if calls_ray_train else "script",
        args=tuple(workload.args),
        cwd=workload.cwd,
        max_restarts=spec.recovery.budgets.user_error,
        storage_uri=f"{storage_uri}/ray-train" if calls_ray_train else "",
        role=workload.role,
    )


def _training(training: Training, dp_target: int, micro_batch: int | None) -> TrainingConfig:
    fields = training.model_dump(exclude={"optimizer", "schedule", "micro_batch"})
    return TrainingConfig(
        **fields,
        micro_batch=training.micro_batch if micro_batch is None else micro_batch,
        dp_target=dp_target,
        optimizer=OptimizerConfig(**training.optimizer.model_dump()),
        schedule=ScheduleConfig(**training.schedule.model_dump()),
    )


def _non_finite(spec: JobSpec) -> NonFiniteConfig:
    is_off = Detector.NON_FINITE in spec.disable_detectors
    return NonFiniteConfig(
        action=NonFiniteAction.IGNORE if is_off else NonFiniteAction(spec.recovery.non_finite),
        max_skips=spec.recovery.budgets.non_finite,
        refill_steps=spec.recovery.refill_steps,
    )


def _loss_spike(spec: JobSpec) -> LossSpikeConfig:
    is_off = Detector.LOSS_SPIKE in spec.disable_detectors
    return LossSpikeConfig(LossSpikeAction.OFF if is_off else LossSpikeAction(spec.recovery.loss_spike))


def _faults(spec: JobSpec) -> tuple[FaultConfig, ...]:
    return tuple(_fault(fault) for fault in spec.faults)


def _fault(fault: Fault) -> FaultConfig:
    at = FaultPoint(fault.at.step, fault.at.phase, fault.at.rank, fault.at.node)
    return FaultConfig(at, fault.do, fault.duration, fault.factor, fault.share, fault.steps)
