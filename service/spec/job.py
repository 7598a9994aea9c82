"""Job spec v1: the YAML or JSON document that a user submits. Unknown and contradictory fields are rejected by name."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.domain.detectors import Detector
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.spec.code import Code
from regroup.service.spec.environment import Environment
from regroup.service.spec.faults import Fault
from regroup.service.spec.layout import LayoutSpec, expand_auto
from regroup.service.spec.layout_rules import NO_MODEL, LayoutCandidate, describe_nearest_degrees, find_violations
from regroup.service.spec.recovery import Recovery
from regroup.service.spec.resources import Resources
from regroup.service.spec.secrets import SecretRef
from regroup.service.spec.state import CheckpointSpec, SnapshotSpec
from regroup.service.spec.topology import TopologySpec
from regroup.service.spec.training import Training
from regroup.service.spec.types import Duration, Name, SpecModel
from regroup.service.spec.workload import (
    NOT_FOR_SCRIPTS,
    BuiltinWorkload,
    FunctionWorkload,
    ProgramWorkload,
    Workload,
    check_fits,
    strip_union_tags,
)


class JobSpec(SpecModel):
    """A complete training job."""

    version: Literal[1] = 1
    """Version of the spec format."""
    name: Name
    """Display name of the job. Names do not need to be unique."""
    project: Name = "default"
    """Project that the job belongs to."""
    labels: dict[str, str] = {}
    """User-defined key-value pairs for filtering."""
    owner: str = ""
    """Contact for the job."""
    workload: Workload
    args: dict[str, Any] = {}
    """Arguments of the training function."""
    env: dict[str, str] = {}
    """Environment variables of the ranks."""
    secrets: dict[str, SecretRef] = {}
    """Environment variables whose values the node looks up."""
    code: Code | None = None
    """The job's own code. Optional."""
    environment: Environment = Environment()
    """The Python environment of the ranks."""
    preload: list[str] = []
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
    storage_uri: str | None = None
    """Storage for checkpoints and prepared data: file, s3 or gs. Default: the server's storage."""
    resume_from: str | None = Field(default=None, pattern=r"^[^@]+@(\d+|latest)$")
    """Checkpoint of another job to start from: `job@step` or `job@latest`."""
    max_duration: Duration | None = None
    """Time after its first start at which the job ends as FAILED."""
    hold_on_failure: Annotated[Duration, Field(le=86400)] | None = None
    """Time for which a failed job keeps its nodes and the files of its ranks for debugging; at most one day."""
    max_queue_time: Duration | None = None
    """Time in the queue after which the job ends as FAILED."""
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    """Priority class. A waiting job can preempt running jobs of a lower class, within their `preemptibility`."""
    preemptibility: Literal["auto", "none", "semi", "full"] = "auto"
    """Devices that other jobs can take while the job runs. `none`: no devices. `semi`: the ranks above `layout.dp.min`.
    `full`: all devices; the job is suspended with its state in durable storage and returns to the queue. `auto`: `none`
    for a script, which manages its own state; otherwise `full`."""
    depends_on: list[Annotated[str, Field(min_length=1, max_length=64)]] = []
    """Jobs, by name in the project or by id, that must have SUCCEEDED before this job starts. If one of them ends in
    another state, this job ends as FAILED."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of initialization, data order and random generators."""
    faults: list[Fault] = []
    """Faults to inject. Needs a server with --allow-faults."""
    disable_detectors: list[Detector] = []
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
        dp = self.layout.dp
        found = {dp.target: self.violations(dp.target)}
        found |= {end: self.violations(end) for end in (dp.min, dp.max) if next(self.legal_layouts(end), None) is None}
        if messages := list(dict.fromkeys(message for each in found.values() for message in each)):
            illegal = next(degree for degree, each in found.items() if each)
            near = describe_nearest_degrees("layout.dp", illegal, lambda degree: not self.violations(degree))
            raise PydanticCustomError("layout", "{messages}{near}", {"messages": "; ".join(messages), "near": near})
        if self.training and self.training.batch != "fixed":
            self._check_micro_batches(self.training)
        for fault in self.faults:
            if (fault.at.rank or 0) >= self.layout.layout_at(self.layout.dp.max).world_size:
                raise PydanticCustomError(
                    "faults",
                    "the rank of a fault must be below the largest world size {size}: rank={rank}",
                    {"rank": fault.at.rank, "size": self.layout.layout_at(self.layout.dp.max).world_size},
                )
        return self

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
    def effective_preemptibility(self) -> Literal["none", "semi", "full"]:
        """Preemptibility with `auto` resolved."""
        if self.preemptibility == "auto":
            return "none" if isinstance(self.workload, ProgramWorkload) else "full"
        return self.preemptibility

    @property
    def ladder(self) -> tuple[Layout, ...]:
        """Size ladder: the legal layouts from the smallest to the largest size. Empty until an automatic layout is
        chosen."""
        if self.layout.auto is not None:
            return ()
        sizes = (next(self.legal_layouts(dp), None) for dp in self.layout.legal_dp_degrees)
        return tuple(layout for layout in sizes if layout is not None)

    def legal_layouts(self, dp: int) -> Iterator[Layout]:
        """Yield the legal layouts at a data-parallel degree, those with the largest micro-batch first.

        The first has the micro-batch of the spec. Smaller micro-batches follow if they change a result only by the
        order of its sums. Yields nothing if the ranks do not form whole copies of the parameters.
        """
        if dp % (self.layout.dp_shard or 1):
            return
        whole = self.layout.layout_at(dp)
        if not self.violations(dp):
            yield whole
        for smaller in self._smaller_micro_batches:
            if not self.violations(dp, smaller):
                yield replace(whole, micro_batch=smaller)

    @property
    def _smaller_micro_batches(self) -> Sequence[int]:
        training = self.training
        if training is None or training.batch != "fixed" or not isinstance(self.workload, BuiltinWorkload):
            return ()
        if self.workload.model_sizes.norm_over is not None:
            return ()  # batch normalization depends on the samples of a micro-batch
        return [size for size in range(training.micro_batch - 1, 0, -1) if training.micro_batch % size == 0]

    def with_model_parallel(self, tp: int, pp: int) -> "JobSpec":
        """Return the same job with other tensor- and pipeline-parallel degrees. Check its `ladder` before use: the
        layout can be illegal."""
        return self.model_copy(update={"layout": self.layout.model_copy(update={"tp": tp, "pp": pp})})

    def violations(self, dp: int, micro_batch: int | None = None) -> list[str]:
        """Return a message for each layout rule that is violated at this data-parallel degree.

        Args:
            dp: data-parallel degree.
            micro_batch: samples per forward; that of the spec if None.
        """
        if self.training is None:
            return []
        samples = self.training.samples_at(dp, self.layout.dp.target)
        choice = LayoutCandidate(
            dp=dp,
            stages=self.layout.stages,
            activation_checkpointing=self.training.activation_checkpointing,
            precision=self.training.precision,
            reduce=self.training.reduce,
            compile=self.training.compile,
            sequence=self.training.sequence or 1,
            micro_batches=samples // (micro_batch or self.training.micro_batch),
            model=self.workload.model_sizes if isinstance(self.workload, BuiltinWorkload) else NO_MODEL,
            **self.layout.model_dump(exclude={"dp", "auto"}),
        )
        return find_violations(choice)

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
    data: object = source
    if isinstance(source, str | bytes):
        try:
            data = yaml.safe_load(source)
        except yaml.YAMLError as error:
            raise SpecError([FieldIssue("", f"cannot parse as YAML or JSON: {error}")]) from error
    if not isinstance(data, dict):
        raise SpecError([FieldIssue("", "a spec must be a mapping of fields", data)])
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError(_issues(error)) from error


def _issues(error: ValidationError) -> list[FieldIssue]:
    return [
        FieldIssue(
            ".".join(strip_union_tags(item["loc"])),
            "unknown field" if item["type"] == "extra_forbidden" else item["msg"],
            item.get("input"),
        )
        for item in error.errors(include_url=False)
    ]
