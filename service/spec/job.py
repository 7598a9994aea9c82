"""Job spec v1: what a person submits, as YAML or JSON. Unknown and contradictory fields are refused by name."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from regroup.service.domain.detectors import Detector
from regroup.service.domain.errors import FieldIssue, SpecError
from regroup.service.domain.layout import Layout
from regroup.service.spec import nearest_sizes
from regroup.service.spec.code import Code
from regroup.service.spec.environment import Environment
from regroup.service.spec.faults import Fault
from regroup.service.spec.layout import LayoutSpec, expand_auto
from regroup.service.spec.layout_rules import NO_MODEL, LayoutCandidate, find_violations
from regroup.service.spec.recovery import Recovery
from regroup.service.spec.resources import Resources
from regroup.service.spec.secrets import SecretRef
from regroup.service.spec.state import CheckpointSpec, SnapshotSpec
from regroup.service.spec.topology import TopologySpec
from regroup.service.spec.training import Training
from regroup.service.spec.types import Duration, Name, SpecModel
from regroup.service.spec.workload import (
    LEFT_TO_A_SCRIPT,
    BuiltinWorkload,
    FunctionWorkload,
    ProgramWorkload,
    Workload,
    check_fits,
    without_tag,
)


class JobSpec(SpecModel):
    """A training job, whole."""

    version: Literal[1] = 1
    """Of this format."""
    name: Name
    """What people call the job; need not be unique."""
    project: Name = "default"
    """The project the job belongs to."""
    labels: dict[str, str] = {}
    """Free key and value pairs to find it by."""
    owner: str = ""
    """Whom to ask about it."""
    workload: Workload
    args: dict[str, Any] = {}
    """Arguments of the training function."""
    env: dict[str, str] = {}
    """Environment variables of the ranks."""
    secrets: dict[str, SecretRef] = {}
    """Environment variables whose values the node looks up."""
    code: Code | None = None
    """The job's own code; none if absent."""
    environment: Environment = Environment()
    """The Python that the ranks run in."""
    preload: list[str] = []
    """Modules the zygote imports before ranks are forked; they must not touch CUDA."""
    resources: Resources = Resources()
    layout: Annotated[LayoutSpec, BeforeValidator(expand_auto)] = LayoutSpec()
    topology: TopologySpec = TopologySpec()
    """Where in the cluster it may be."""
    training: Training | None = Field(default=None, validate_default=True)
    """What the built-in trainer computes: required for it, refused for a script, which decides that itself."""
    determinism: Literal["default", "strict"] = "default"
    """`strict` makes CUDA runs bitwise repeatable at a cost; CPU runs always are."""
    snapshot: SnapshotSpec = SnapshotSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: Recovery = Recovery()
    storage_uri: str | None = None
    """Where checkpoints and prepared data go: file, s3 or gs. The server's default if absent."""
    resume_from: str | None = Field(default=None, pattern=r"^[^@]+@(\d+|latest)$")
    """`job@step` or `job@latest`: start from another job's checkpoint."""
    max_duration: Duration | None = None
    """The job is FAILED after this long since its first start."""
    hold_on_failure: Annotated[Duration, Field(le=86400)] | None = None
    """A job that goes wrong keeps its nodes and what its ranks left for so long, at most a day, to be looked at."""
    max_queue_time: Duration | None = None
    """The job is FAILED after waiting this long."""
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    """Class in the queue. Running jobs of a lower class make room for it, as far as their `preemptibility` goes."""
    preemptibility: Literal["auto", "none", "semi", "full"] = "auto"
    """What others may take while it runs: `none`; `semi`: ranks above `layout.dp.min`; `full`: all, it is suspended
    with its state in durable storage and queues again. `auto`: `full`, but `none` for a script, whose state is its
    own."""
    depends_on: list[Annotated[str, Field(min_length=1, max_length=64)]] = []
    """Jobs, by name in the project or by id, that must have SUCCEEDED before it starts. If one ends otherwise, so does
    it."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of initialisation, data order and random generators."""
    faults: list[Fault] = []
    """Rehearsed failures; need a server with --allow-faults."""
    disable_detectors: list[Detector] = []
    """Detectors that are off for this job, to see what goes wrong without them; need a server with --allow-faults."""

    @field_validator("training", "faults", "recovery", *LEFT_TO_A_SCRIPT)
    @classmethod
    def _fits_the_workload(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        if (workload := info.data.get("workload")) is not None:
            check_fits(workload, name, value, cls.model_fields[name].default)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.layout.auto is not None:
            return self._to_be_planned()
        if self.training and "micro_batch" not in self.training.model_fields_set:
            raise PydanticCustomError("missing", "training.micro_batch: needed, but with layout auto, which chooses it")
        if isinstance(self.workload, FunctionWorkload) and (odd := _split_by_more_than_data(self.layout)):
            raise PydanticCustomError(
                "layout", "layout.{field}: a function is data parallel; what it splits otherwise is its own", odd
            )
        dp = self.layout.dp
        wrong = {dp.target: self.violations(dp.target)}
        wrong |= {end: self.violations(end) for end in (dp.min, dp.max) if next(self.legal_layouts(end), None) is None}
        if messages := list(dict.fromkeys(message for found in wrong.values() for message in found)):
            odd = next(degree for degree, found in wrong.items() if found)
            near = nearest_sizes.said("layout.dp", odd, lambda degree: not self.violations(degree))
            raise PydanticCustomError("layout", "{messages}{near}", {"messages": "; ".join(messages), "near": near})
        if self.training and self.training.batch != "fixed":
            self._check_shares(self.training)
        for fault in self.faults:
            if (fault.at.rank or 0) >= self.layout.layout_at(self.layout.dp.max).world_size:
                raise PydanticCustomError(
                    "faults", "a fault's rank is below the largest world size: {rank}", {"rank": fault.at.rank}
                )
        return self

    def _to_be_planned(self) -> Self:
        if isinstance(self.workload, FunctionWorkload):
            raise PydanticCustomError("auto", "layout.auto: what a function computes is its own; nobody can plan it")
        return self

    def _check_shares(self, training: Training) -> None:
        target, count = self.layout.dp.target, training.global_batch // training.micro_batch
        if count % target:
            raise PydanticCustomError(
                "batch",
                "training.batch follows_world: at layout.dp.target every rank has as many micro-batches: "
                "{count} micro-batches, target {target}",
                {"count": count, "target": target},
            )

    def samples_per_step(self, layout: Layout) -> int | None:
        """That a step has in a generation of this layout; None where it is the program's own matter."""
        if self.training is None:
            return None
        return self.training.samples_at(layout.data_degree, self.layout.dp.target)

    @property
    def effective_preemptibility(self) -> Literal["none", "semi", "full"]:
        """What others may take of it while it runs."""
        if self.preemptibility == "auto":
            return "none" if isinstance(self.workload, ProgramWorkload) else "full"
        return self.preemptibility

    @property
    def ladder(self) -> tuple[Layout, ...]:
        """Legal layouts from the smallest to the largest; none as long as none is chosen."""
        if self.layout.auto is not None:
            return ()
        sizes = (next(self.legal_layouts(dp), None) for dp in self.layout.legal_dp_degrees)
        return tuple(layout for layout in sizes if layout is not None)

    def legal_layouts(self, dp: int) -> Iterator[Layout]:
        """Legal ones at this data-parallel degree: with the micro-batch of the spec, and with smaller ones where a
        result depends on it only by the order of sums; the largest first. None where its ranks are no whole copies."""
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
            return ()  # it norms over the samples of a micro-batch, or counts them
        return [size for size in range(training.micro_batch - 1, 0, -1) if training.micro_batch % size == 0]

    def with_model_parallel(self, tp: int, pp: int) -> "JobSpec":
        """The same job with other tensor- and pipeline-parallel degrees; its `ladder` says where that is legal."""
        return self.model_copy(update={"layout": self.layout.model_copy(update={"tp": tp, "pp": pp})})

    def violations(self, dp: int, micro_batch: int | None = None) -> list[str]:
        """The rules that it would break at this data-parallel degree, in words. `micro_batch`: that of the spec, if
        absent."""
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
        """Whether ranks compare what they hold alike."""
        asked = self.recovery.verify_replicas
        return isinstance(self.workload, BuiltinWorkload) if asked == "auto" else asked


def _split_by_more_than_data(layout: LayoutSpec) -> dict[str, Any]:
    odd = [field for field in ("tp", "cp", "pp") if getattr(layout, field) != 1]
    return {"field": odd[0]} if odd else {}


def parse_spec(source: str | bytes | dict[str, Any]) -> JobSpec:
    """A spec from YAML or JSON text, or from a mapping already read.

    Raises:
        SpecError: with one issue per wrong field.
    """
    data: object = source
    if isinstance(source, str | bytes):
        try:
            data = yaml.safe_load(source)
        except yaml.YAMLError as error:
            raise SpecError([FieldIssue("", f"not readable as YAML or JSON: {error}")]) from error
    if not isinstance(data, dict):
        raise SpecError([FieldIssue("", "a spec is a mapping of fields", data)])
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError(_issues(error)) from error


def _issues(error: ValidationError) -> list[FieldIssue]:
    return [
        FieldIssue(
            ".".join(without_tag(item["loc"])),
            "unknown field" if item["type"] == "extra_forbidden" else item["msg"],
            item.get("input"),
        )
        for item in error.errors(include_url=False)
    ]
