"""Job spec v1: the YAML or JSON document that a user submits. Unknown and contradictory fields are rejected by name."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from regroup.service.documents.yaml_text import parse_yaml
from regroup.service.domain.detectors import Detector
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.spec.budget import UsageBudget
from regroup.service.spec.code import Code
from regroup.service.spec.environment import Environment
from regroup.service.spec.faults import Fault
from regroup.service.spec.issues import find_issues
from regroup.service.spec.ladder import LadderRules, describe_violations, find_ladder
from regroup.service.spec.layout import LayoutSpec, expand_auto
from regroup.service.spec.recovery import Recovery
from regroup.service.spec.resources import Resources
from regroup.service.spec.secrets import SecretRef
from regroup.service.spec.state import CheckpointSpec, SnapshotSpec
from regroup.service.spec.topology import TopologySpec
from regroup.service.spec.training import Training
from regroup.service.spec.types import (
    CHECKPOINT,
    LABEL_NAME,
    MIN_DURATION_S,
    Duration,
    Integer,
    Line,
    ModuleName,
    Name,
    SpecModel,
    StorageUri,
    Value,
    VariableName,
    check_integer,
    check_line,
    check_plain_data,
    parse_seconds,
)
from regroup.service.spec.workload import (
    NOT_FOR_SCRIPTS,
    BuiltinWorkload,
    FunctionWorkload,
    ProgramWorkload,
    Workload,
    check_fits,
)
from regroup.workers.contract.restart_check import COMPARED_STEPS

UNTYPED = frozenset({"args"})
"""Fields of a spec whose values have no declared type."""
_MAX_LABELS = 64
_MAX_VARIABLES = 512
_MAX_ENVIRONMENT_BYTES = 64 * 1024
"""Largest environment, names and values together. Linux allows 128 KiB per variable and a quarter of the stack."""
_MAX_ARGS_VALUES = 10_000
_MAX_ARGS_CHARACTERS = 256 * 1024
_LabelName = Annotated[str, Field(min_length=1, max_length=128, pattern=LABEL_NAME)]


def _check_args(value: Any) -> Any:
    return check_plain_data(value, _MAX_ARGS_VALUES, _MAX_ARGS_CHARACTERS)


def _check_size(env: dict[str, str]) -> dict[str, str]:
    size_bytes = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in env.items())
    if size_bytes > _MAX_ENVIRONMENT_BYTES:
        raise PydanticCustomError(
            "environment",
            "can have at most {limit} bytes together, not {size}: put large values into a file of the code",
            {"limit": f"{_MAX_ENVIRONMENT_BYTES:,}", "size": f"{size_bytes:,}"},
        )
    return env


class JobSpec(SpecModel):
    """A complete training job."""

    version: Annotated[Literal[1], BeforeValidator(check_integer)] = 1
    """Version of the spec format."""
    name: Name
    """Display name of the job. Names do not need to be unique."""
    project: Name = "default"
    """Project that the job belongs to."""
    labels: Annotated[dict[_LabelName, Line], Field(max_length=_MAX_LABELS)] = {}
    """User-defined key-value pairs for filtering."""
    owner: Line = ""
    """Contact for the job."""
    workload: Workload
    args: Annotated[dict[str, Any], Field(max_length=_MAX_ARGS_VALUES), BeforeValidator(_check_args)] = {}
    """Arguments of the training function: plain data with finite numbers, in all at most 256 Ki characters."""
    env: Annotated[dict[VariableName, Value], Field(max_length=_MAX_VARIABLES), AfterValidator(_check_size)] = {}
    """Environment variables of the ranks: at most 64 KiB in all. A name consists of letters, digits and `_`."""
    secrets: Annotated[dict[VariableName, SecretRef], Field(max_length=_MAX_VARIABLES)] = {}
    """Environment variables whose values the project stores, or the node looks up."""
    code: Code | None = None
    """The job's own code. Optional."""
    environment: Environment = Environment()
    """The Python environment of the ranks."""
    preload: Annotated[list[ModuleName], Field(max_length=256)] = []
    """Modules that the zygote imports before it forks ranks. They must not use CUDA."""
    resources: Resources = Resources()
    layout: Annotated[LayoutSpec, BeforeValidator(expand_auto)] = LayoutSpec()
    topology: TopologySpec = TopologySpec()
    """Constraints on the nodes of the job."""
    training: Training | None = Field(default=None, validate_default=True)
    """Settings of the built-in trainer, which requires this section. Not allowed for a script, which controls its own
    training."""
    determinism: Literal["default", "strict"] = "default"
    """`strict` makes CUDA runs bitwise repeatable at some cost. CPU runs are always repeatable."""
    snapshot: SnapshotSpec = SnapshotSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: Recovery = Recovery()
    storage_uri: StorageUri | None = None
    """Storage for checkpoints and prepared data: an absolute path, `file:///…`, `s3://…` or `gs://…`. Default: the
    server's storage."""
    resume_from: Annotated[str, Field(max_length=100, pattern=CHECKPOINT)] | None = None
    """Checkpoint of another job to start from: `job@step` or `job@latest`."""
    max_duration: Duration | None = None
    """Time after its first start at which the job ends as FAILED."""
    hold_on_failure: Annotated[float, Field(ge=MIN_DURATION_S, le=86400), BeforeValidator(parse_seconds)] | None = None
    """Time for which a failed job keeps its nodes and the files of its ranks for debugging; at most one day."""
    termination_grace: Annotated[Duration, Field(le=3600)] = 30.0
    """Time from SIGTERM to SIGKILL when ranks end by plan: at cancel, suspend, preemption, resize, `max_duration`, and
    a drain without a deadline; at most one hour."""
    max_queue_time: Duration | None = None
    """Time in the queue after which the job ends as FAILED."""
    budget: UsageBudget | None = None
    """Device-hours or cost that the job may use: `{device_hours: 100}` or `{cost: 250}`. At the limit, the job saves
    its state and is suspended until the budget is raised."""
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    """Priority class. A waiting job can preempt running jobs of a lower class, within their `preemptibility`."""
    preemptibility: Literal["auto", "none", "semi", "full"] = "auto"
    """Devices that other jobs can take while the job runs. `none`: no devices. `semi`: the ranks above `layout.dp.min`.
    `full`: all devices; the job is suspended with its state in durable storage and returns to the queue. `auto`: `none`
    for a script, which manages its own state; otherwise `full`."""
    depends_on: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64), AfterValidator(check_line)]], Field(max_length=256)
    ] = []
    """Jobs, by name in the project or by id, that must have SUCCEEDED before this job starts. If one of them ends in
    another state, this job ends as FAILED."""
    seed: Integer = Field(default=0, ge=0, lt=2**63)
    """Seed of initialization, data order and random generators."""
    faults: Annotated[list[Fault], Field(max_length=1000)] = []
    """Faults to inject. Needs a server with --allow-faults."""
    disable_detectors: Annotated[list[Detector], Field(max_length=len(Detector))] = []
    """Detectors to switch off for this job, to show what fails without them. Needs a server with --allow-faults."""

    @field_validator("training", "faults", "recovery", *NOT_FOR_SCRIPTS)
    @classmethod
    def _check_workload(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        if (workload := info.data.get("workload")) is not None:
            check_fits(workload, name, value, cls.model_fields[name].default)
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if both := sorted(self.env.keys() & self.secrets.keys()):
            raise PydanticCustomError(
                "variable", "env and secrets both define {name}: remove one of them", {"name": both[0]}
            )
        self._check_steps_to_verify()
        if self.layout.auto is not None:
            self._check_auto_layout()
            return self
        if self.training and "micro_batch" not in self.training.model_fields_set:
            raise PydanticCustomError("missing", "training.micro_batch is required unless layout is auto")
        if isinstance(self.workload, FunctionWorkload) and (field := _model_parallel_field(self.layout)):
            raise PydanticCustomError(
                "layout",
                "layout.{field} must be 1 for a function workload: only data parallelism is supported",
                {"field": field},
            )
        self._check_layout_rules()
        if self.training and self.training.batch != "fixed":
            self._check_micro_batches(self.training)
        for fault in self.faults:
            largest = self.layout.layout_at(self.layout.dp.max).world_size
            if (fault.at.rank or 0) >= largest:
                raise PydanticCustomError(
                    "faults",
                    "the rank of a fault must be below the largest world size {size}: rank={rank}",
                    {"rank": fault.at.rank, "size": largest},
                )
        return self

    def _check_steps_to_verify(self) -> None:
        # A function may train for another number of steps than training.steps, so its ranks check it.
        steps = self.training.steps if self.training and isinstance(self.workload, BuiltinWorkload) else None
        if self.recovery.verifies_restart and steps is not None and steps <= max(COMPARED_STEPS):
            raise PydanticCustomError(
                "verify",
                "recovery.verify needs more than {most} steps, and training.steps is {steps}: train longer, or set "
                "verify to off",
                {"most": max(COMPARED_STEPS), "steps": steps},
            )

    def _check_layout_rules(self) -> None:
        if problem := describe_violations(self.ladder_rules):
            raise PydanticCustomError("layout", "{problem}", {"problem": problem})

    def _check_auto_layout(self) -> None:
        if isinstance(self.workload, FunctionWorkload):
            raise PydanticCustomError(
                "auto",
                "layout: auto is not available for function workloads (the planner cannot model user code): set the "
                "layout explicitly",
            )

    def _check_micro_batches(self, training: Training) -> None:
        target, count = self.layout.dp.target, training.global_batch // training.micro_batch
        if count % target:
            raise PydanticCustomError(
                "batch",
                "training.batch: follows_world needs the same number of micro-batches on every rank at "
                "layout.dp.target: {count} micro-batches, target {target}",
                {"count": count, "target": target},
            )

    def samples_per_step(self, layout: Layout) -> int | None:
        """Return the number of samples of a step at this layout; None if the program controls it."""
        if self.training is None:
            return None
        return self.training.samples_at(layout.data_degree, self.layout.dp.target)

    @property
    def project_secrets(self) -> dict[str, str]:
        """Variable → name of the secret of the project that it contains."""
        return {name: ref.from_project for name, ref in self.secrets.items() if ref.from_project is not None}

    @property
    def effective_preemptibility(self) -> Literal["none", "semi", "full"]:
        """Preemptibility with `auto` resolved."""
        if self.preemptibility == "auto":
            return "none" if isinstance(self.workload, ProgramWorkload) else "full"
        return self.preemptibility

    @property
    def ladder(self) -> tuple[Layout, ...]:
        """Size ladder: legal layouts from the smallest to the largest size. Empty until an automatic layout is chosen.

        In a large range it has the degrees of `ladder.find_degrees`, not all of them.
        """
        if self.layout.auto is not None:
            return ()
        return find_ladder(self.ladder_rules)

    @property
    def ladder_rules(self) -> LadderRules:
        """The rules that decide which layouts are legal."""
        sizes = self.workload.model_sizes if isinstance(self.workload, BuiltinWorkload) else None
        return LadderRules(self.layout, self.training, sizes)

    def legal_layouts(self, dp: int) -> Iterator[Layout]:
        """Yield the legal layouts at a data-parallel degree, those with the largest micro-batch first."""
        return self.ladder_rules.legal_layouts(dp)

    def with_model_parallel(self, tp: int, pp: int) -> "JobSpec":
        """Return the same job with other tensor- and pipeline-parallel degrees. Check its `ladder` before use: the
        layout can be illegal."""
        return self.model_copy(update={"layout": self.layout.model_copy(update={"tp": tp, "pp": pp})})

    def violations(self, dp: int) -> list[str]:
        """Return a message for each layout rule that is violated at this data-parallel degree."""
        return self.ladder_rules.violations(dp)

    @property
    def verifies_replicas(self) -> bool:
        """True if ranks compare their replicated state at each snapshot."""
        value = self.recovery.verify_replicas
        return isinstance(self.workload, BuiltinWorkload) if value == "auto" else value


def _model_parallel_field(layout: LayoutSpec) -> str:
    return next((field for field in ("tp", "cp", "pp") if getattr(layout, field) != 1), "")


def parse_spec(source: str | bytes | dict[str, Any]) -> JobSpec:
    """Parse a spec from YAML or JSON text, or from a mapping.

    Raises:
        SpecError: the spec is invalid; has one issue per wrong field.
    """
    data = parse_yaml(source, UNTYPED) if isinstance(source, str | bytes) else source
    if not isinstance(data, dict):
        raise SpecError([FieldIssue("", "a spec must be a mapping of fields", data)])
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError(find_issues(error, cast(object, data))) from error
