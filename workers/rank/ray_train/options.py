"""What a program asks of Ray Train, held against what its job is. Pure, and knows no ray."""

from dataclasses import dataclass

NO_DATASETS = (
    "Ray Data runs on a Ray cluster, and a job of kind ray_train is in none: read the files in the training loop with "
    "a DataLoader, or make it a job of kind function, whose data Ray Data prepares beforehand (data.prepare)"
)


@dataclass(frozen=True)
class Asked:
    """A trainer's arguments, as far as they decide where and with what it runs."""

    workers: tuple[int, int] = (1, 1)
    """Smallest and largest number of `ScalingConfig`."""
    use_gpu: bool = False
    gpus: float = 0.0
    """GPUs of one worker."""
    backend: str = ""
    """A backend that is not torch's."""
    datasets: tuple[str, ...] = ()
    callbacks: tuple[str, ...] = ()
    """Those that are not `UserCallback`s."""
    environment: tuple[str, ...] = ()
    """Keys of `worker_runtime_env` other than `env_vars`."""
    has_validation: bool = False
    max_failures: int = 0


def refusal(asked: Asked, world_size: int, device: str) -> str | None:
    """What of this the job cannot be, and what to change; None if nothing."""
    low, high = asked.workers
    wanted = str(low) if low == high else f"({low}, {high})"
    if high == 0:
        return "ScalingConfig(num_workers=0) is Ray Train's local mode: give the number of ranks"
    if not low <= world_size <= high:
        return (
            f"ScalingConfig(num_workers={wanted}), but the job runs on {world_size} ranks: "
            "change the one, or layout.dp of the other"
        )
    if asked.use_gpu != (device == "cuda"):
        return (
            f"ScalingConfig(use_gpu={asked.use_gpu}), but resources.device of the job is {device}: change one of them"
        )
    if asked.gpus not in (0.0, 1.0):
        return f"ScalingConfig(resources_per_worker={{'GPU': {asked.gpus:g}}}): a rank has one device"
    if asked.datasets:
        return f"datasets={sorted(asked.datasets)}: {NO_DATASETS}"
    if asked.backend:
        return f"{asked.backend} as a backend: kind: ray_train serves TorchTrainer and plain DataParallelTrainer"
    if asked.callbacks:
        return f"RunConfig(callbacks) {sorted(asked.callbacks)}: only UserCallbacks can run without Ray's controller"
    if asked.environment:
        return (
            f"RunConfig(worker_runtime_env) with {sorted(asked.environment)}: only env_vars apply here; "
            "code and packages are of the job"
        )
    if asked.has_validation:
        return "validation_config: validation runs as Ray tasks, and a job of kind ray_train is in no Ray cluster"
    return None


def of_budgets(asked: Asked, allowed: int) -> str | None:
    """What to say where the program counts on more failures of its own being tried again than the job allows."""
    if asked.max_failures == allowed or 0 <= asked.max_failures < allowed:
        return None
    wanted = "any number" if asked.max_failures < 0 else str(asked.max_failures)
    return (
        f"FailureConfig(max_failures={asked.max_failures}) wants {wanted} of errors tried again; this job tries "
        f"{allowed}: recovery.budgets.user_error says how many. Lost ranks and nodes have budgets of their own"
    )
