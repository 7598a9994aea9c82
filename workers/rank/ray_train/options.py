"""A program's options for Ray Train, and the ones that its job does not support. Pure; does not import ray."""

from dataclasses import dataclass

NO_DATASETS = (
    "Ray Data runs on a Ray cluster, and a job of kind ray_train is in none: read the files in the training loop with "
    "a DataLoader, or make it a job of kind function, whose data Ray Data prepares beforehand (data.prepare)"
)


@dataclass(frozen=True)
class TrainerOptions:
    """Arguments of a trainer that decide where and with which resources it runs."""

    workers: tuple[int, int] = (1, 1)
    """Smallest and largest number of workers in `ScalingConfig`."""
    use_gpu: bool = False
    gpus: float = 0.0
    """GPUs of one worker."""
    backend: str = ""
    """Name of a backend other than torch's; empty if none."""
    datasets: tuple[str, ...] = ()
    callbacks: tuple[str, ...] = ()
    """Callbacks that are not `UserCallback`s."""
    environment: tuple[str, ...] = ()
    """Keys of `worker_runtime_env` other than `env_vars`."""
    has_validation: bool = False
    max_failures: int = 0


def unsupported_option(options: TrainerOptions, world_size: int, device: str) -> str | None:
    """Return an option that the job does not support, with the remedy; None if it supports all of them."""
    low, high = options.workers
    requested = str(low) if low == high else f"({low}, {high})"
    if high == 0:
        return "ScalingConfig(num_workers=0) is Ray Train's local mode: give the number of ranks"
    if not low <= world_size <= high:
        return (
            f"ScalingConfig(num_workers={requested}), but the job runs on {world_size} ranks: "
            "change the one, or layout.dp of the other"
        )
    if options.use_gpu != (device == "cuda"):
        return (
            f"ScalingConfig(use_gpu={options.use_gpu}), but resources.device of the job is {device}: change one of them"
        )
    if options.gpus not in (0.0, 1.0):
        return f"ScalingConfig(resources_per_worker={{'GPU': {options.gpus:g}}}): a rank has one device"
    if options.datasets:
        return f"datasets={sorted(options.datasets)}: {NO_DATASETS}"
    if options.backend:
        return f"{options.backend} as a backend: kind: ray_train serves TorchTrainer and plain DataParallelTrainer"
    if options.callbacks:
        return f"RunConfig(callbacks) {sorted(options.callbacks)}: only UserCallbacks can run without Ray's controller"
    if options.environment:
        return (
            f"RunConfig(worker_runtime_env) with {sorted(options.environment)}: only env_vars apply here; "
            "code and packages are of the job"
        )
    if options.has_validation:
        return "validation_config: validation runs as Ray tasks, and a job of kind ray_train is in no Ray cluster"
    return None


def budget_note(options: TrainerOptions, allowed: int) -> str | None:
    """Return a note if the program requests more retries of its own failures than the job allows; None otherwise."""
    if options.max_failures == allowed or 0 <= options.max_failures < allowed:
        return None
    requested = "any number" if options.max_failures < 0 else str(options.max_failures)
    return (
        f"FailureConfig(max_failures={options.max_failures}) requests {requested} of errors retried; this job retries "
        f"{allowed}: set recovery.budgets.user_error to change this. Lost ranks and nodes have budgets of their own"
    )
