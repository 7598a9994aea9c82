"""Parser of measured configurations: a row of text becomes a `Row`, with missing values inferred by rule."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from regroup.service.domain.hardware import Device, find_device
from regroup.service.domain.layout import Layout
from regroup.service.planner.formulas import MIXED_ADAM, PipelineSchedule, Sharding, StateBytes
from regroup.service.planner.model_shape import PRESETS, Model
from regroup.service.planner.types import Cluster, Plan, Work

_FULL = ("layers", "hidden", "seq", "gpu", "gpus", "tp", "pp", "mbs", "gbs", "precision")
"""Columns that a complete row has."""
_HEAD_WIDTH = 128
_COMMON_VOCABULARY = 50304
_COMMON_SEQUENCE = 1024
"""Values of GPT-2, which the first reports of tensor parallelism used."""
_RECOMPUTED = {"": 0.0, "none": 0.0, "full": 1.0}
_LAYER_RECOMPUTED = 0.5
"""Share of torchtitan's selective modes: every second layer, or every second matrix multiplication."""
_MOMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
_SCHEDULES: Mapping[str, PipelineSchedule] = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved_1f1b": "interleaved_1f1b",
    "interleaved_zero_bubble": "interleaved_zero_bubble",
    "zbv": "zbv",
}


class RowError(ValueError):
    """A row that cannot be evaluated. The message states the reason."""


@dataclass(frozen=True)
class Row:
    """A published configuration with its measured values."""

    source: str
    name: str
    work: Work
    cluster: Cluster
    plan: Plan
    states: StateBytes
    stack: str
    step_s: float | None
    """Measured seconds per step; None if the row has no time, or did not run."""
    memory_gb: float | None
    out_of_memory: bool
    full: bool
    """True if the row has every column in `_FULL`."""
    inferred: Mapping[str, object] = field(default_factory=dict[str, object])
    """Values of missing columns, by column."""

    @property
    def size(self) -> tuple[str, int, int]:
        """Identity of the model's size."""
        return (self.name, self.work.model.layers, self.work.model.hidden)


def read_row(columns: Mapping[str, str]) -> Row:
    """Parse a row of text.

    Raises:
        RowError: a value is missing, or values contradict each other.
    """
    return _Reader({name: (text or "").strip() for name, text in columns.items() if name}).row()


class _Reader:
    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._inferred: dict[str, object] = {}

    def row(self) -> Row:
        device = self._device()
        work = self._work()
        try:
            device.flops(work.precision)
        except KeyError as error:
            raise RowError(str(error.args[0])) from None
        layout, gpus = self._layout()
        plan = self._plan(work, layout)
        out_of_memory = self._text("mem_gb").upper() == "OOM"
        full = all(self._text(name) for name in _FULL)
        step_s = self._step_s(work, gpus)
        _refuse_impossible(work, device, gpus, step_s)
        return Row(
            source=self._text("source"),
            name=self._text("model"),
            work=work,
            cluster=self._cluster(device, gpus),
            plan=plan,
            states=self._states(),
            stack=stack_of(self._text("source")),
            step_s=step_s,
            memory_gb=None if out_of_memory else self._measured("mem_gb"),
            out_of_memory=out_of_memory,
            full=full,
            inferred=self._inferred,
        )

    def _text(self, name: str) -> str:
        return self._columns.get(name, "")

    def _number(self, name: str) -> float | None:
        text = self._text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise RowError(f"{name} must be a number, got {text!r}") from None
        if not (0 < value < math.inf):
            raise RowError(f"{name} must be positive, got {text}")
        return value

    def _whole(self, name: str) -> int | None:
        value = self._number(name)
        if value is not None and value != int(value):
            raise RowError(f"{name} must be a whole number, got {value}")
        return None if value is None else int(value)

    def _measured(self, name: str) -> float | None:
        """Return a measured value; None if the column has text instead of a number."""
        try:
            value = float(self._text(name))
        except ValueError:
            return None
        return value if 0 < value < math.inf else None

    def _infer(self, name: str, value: object) -> None:
        self._inferred[name] = value

    def _device(self) -> Device:
        text = self._text("gpu")
        device = find_device(text)
        if device is None:
            raise RowError(f"gpu {text!r} is not in the hardware table")
        return device

    def _work(self) -> Work:
        sequence = self._whole("seq")
        if sequence is None:
            sequence = _COMMON_SEQUENCE
            self._infer("seq", sequence)
        model = self._model()
        batch = self._whole("gbs")
        tokens = _stated_tokens(self._text("note"))
        if batch is None and tokens:
            batch = max(1, round(tokens / sequence))
            self._infer("gbs", batch)
        if batch is None:
            raise RowError("gbs is missing: the work of a step is unknown")
        precision = _precision(self._text("precision"))
        flash = self._text("flash")
        if not flash:
            flash = "no" if precision == "fp16" else "yes"
            self._infer("flash", flash)
        return Work(model, batch, sequence, precision, flash.lower() in ("yes", "true", "1"))

    def _model(self) -> Model:
        layers, hidden, heads = self._whole("layers"), self._whole("hidden"), self._whole("heads")
        if hidden is None:
            raise RowError("hidden is missing")
        preset = _preset(self._text("model"), layers, hidden)
        vocabulary = self._whole("vocab") or _stated_vocabulary(self._text("note"))
        if vocabulary is None:
            vocabulary = preset.vocabulary if preset else _COMMON_VOCABULARY
            self._infer("vocab", vocabulary)
        if layers is None:
            parameters = self._number("params_b")
            if parameters is None:
                raise RowError("layers and params_b are both missing")
            layers = max(1, round((parameters * 1e9 - vocabulary * hidden) / (12 * hidden**2)))
            self._infer("layers", layers)
        if heads is None:
            heads = preset.heads if preset else max(1, hidden // _HEAD_WIDTH)
            self._infer("heads", heads)
        base = preset or Model(layers, hidden, heads, vocabulary, tied=True)
        given = {"ffn": self._whole("ffn"), "kv_heads": self._whole("kv_heads")}
        if preset:
            self._infer("ffn, kv_heads", [preset.inner, preset.groups])
        sizes = {name: value for name, value in given.items() if value}
        return replace(base, layers=layers, hidden=hidden, heads=heads, vocabulary=vocabulary, **sizes)

    def _layout(self) -> tuple[Layout, int]:
        gpus = self._whole("gpus")
        if gpus is None:
            raise RowError("gpus is missing")
        experts = self._whole("ep") or 1
        if experts > 1:
            raise RowError(f"ep is {experts}: expert parallelism is not supported")
        tp, pp, cp = (self._whole(name) or 1 for name in ("tp", "pp", "cp"))
        dp = self._whole("dp")
        if dp is None:
            dp = max(1, gpus // (tp * pp * cp))
            self._infer("dp", dp)
        if tp * pp * cp * dp != gpus:
            raise RowError(
                f"degrees do not match gpus: tp·pp·cp·dp = {tp}·{pp}·{cp}·{dp} = {tp * pp * cp * dp}, gpus = {gpus}"
            )
        if self._sharding() in ("fsdp", "zero2"):
            return Layout(dp_shard=dp, tp=tp, pp=pp, cp=cp), gpus
        return Layout(dp_replicate=dp, tp=tp, pp=pp, cp=cp), gpus

    def _sharding(self) -> Sharding:
        text = f"{self._text('sharding')} {self._text('zero')}".lower()
        if "shard_grad_op" in text or "zero-2" in text:
            return "zero2"
        if "fsdp" in text or "zero-3" in text:
            return "fsdp"
        return "zero1" if "zero-1" in text or "distributed optimizer" in text else "ddp"

    def _plan(self, work: Work, layout: Layout) -> Plan:
        micro = self._whole("mbs")
        if micro is None:
            micro = 1
            self._infer("mbs", micro)
        virtual = (self._whole("vp") or 1) if layout.pp > 1 else 1
        named = self._text("schedule").lower()
        implied: PipelineSchedule = "interleaved_1f1b" if virtual > 1 else "1f1b"
        recomputation = self._text("act_ckpt").lower()
        recent = work.precision != "fp16"
        parallel = self._text("sp").lower()
        return Plan(
            layout=layout,
            micro_batch=micro,
            sharding=self._sharding(),
            checkpointing="full"
            if recomputation == "full"
            else "selective"
            if recomputation.startswith("selective")
            else "none",
            schedule=_SCHEDULES.get(named, implied),
            virtual=virtual,
            sequence_parallel=parallel in ("yes", "true", "1") if parallel else recent,
            overlap=recent,
            recomputed=_RECOMPUTED.get(recomputation, _LAYER_RECOMPUTED),
        )

    def _states(self) -> StateBytes:
        """Return the bytes per parameter. The master copy is 32-bit; so are the moments, unless the row has another
        `optimizer_dtype`."""
        moment = _MOMENT_BYTES.get(self._text("optimizer_dtype").lower(), 4)
        return replace(MIXED_ADAM, optimizer=4 + 2 * moment)

    def _cluster(self, device: Device, gpus: int) -> Cluster:
        domain = self._whole("gpus_per_node") or device.domain
        stated = _stated_ports(f"{self._text('link')} {self._text('note')}")
        if stated is None:
            self._infer("network_gb_s_per_gpu", device.network_bytes_s / 1e9)
        network = device.network_bytes_s if stated is None else stated / min(8, domain)
        watts = re.search(r"(\d{3,4})\s*W\b", self._text("gpu"))
        if watts and float(watts[1]) < 0.95 * 700 and device.name.startswith("H100"):
            device = replace(device, ceiling=device.ceiling * math.sqrt(float(watts[1]) / 700))
            self._infer("ceiling", round(device.ceiling, 2))
        return Cluster(device, gpus, domain, network)

    def _step_s(self, work: Work, gpus: int) -> float | None:
        """Return the measured seconds per step: as stated, or from tokens or model operations per second."""
        stated = self._measured("iter_s")
        if stated is not None:
            return stated
        rate = self._measured("tok_s_gpu")
        if rate is not None:
            return work.global_batch * work.sequence / (rate * gpus)
        tflops = self._measured("tflops_gpu")
        if tflops is None:
            return None
        counts_redone = self._text("act_ckpt") == "full" and not self._text("mfu_pct")
        redone = 4 / 3 if counts_redone else 1.0
        self._infer("tflops_gpu counts", "recomputed operations too" if counts_redone else "the model's operations")
        return work.model.step_flops(work.global_batch, work.sequence) * redone / (tflops * 1e12 * gpus)


def _refuse_impossible(work: Work, device: Device, gpus: int, step_s: float | None) -> None:
    """Raise RowError if the measured time exceeds the device's peak, so that the columns contradict each other."""
    if step_s is None:
        return
    peak = device.flops(work.precision) / device.ceiling
    implied = work.model.step_flops(work.global_batch, work.sequence) / (step_s * gpus)
    if implied > peak:
        raise RowError(
            f"impossible values: {step_s:g} s for this batch on {gpus} GPUs is {implied / 1e12:.0f} TFLOP/s per GPU,"
            f" above the {peak / 1e12:.0f} TFLOP/s of {device.name}; check gbs and gpus"
        )


def stack_of(source: str) -> str:
    """Return the software of a source without version and date: its name up to the first digit or bracket."""
    words = re.split(r"[\d(]", source, maxsplit=1)[0].replace("-", " ").split()
    return " ".join(words[:1] if words[:1] != ["NVIDIA"] else words[:3])


def _precision(text: str) -> str:
    low = text.lower()
    if "fp4" in low:
        return "fp4"
    if "fp8" in low or "float8" in low:
        return "fp8"
    return "fp32" if low == "fp32" else "fp16" if low.startswith("fp16") else "bf16"


def _preset(name: str, layers: int | None, hidden: int) -> Model | None:
    family = re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]
    generation = re.search(r"\d", name)
    prefix = f"{family}{generation[0] if generation else ''}"
    for key, model in PRESETS.items():
        if key.startswith(prefix) and model.layers == layers and model.hidden == hidden:
            return model
    return None


def _stated_vocabulary(note: str) -> int | None:
    found = re.search(r"vocab (\d+)(k?)", note)
    return int(found[1]) * (1000 if found[2] else 1) if found else None


def _stated_tokens(note: str) -> float | None:
    """Return the tokens per step that a note states."""
    found = re.search(r"(\d+)M tokens per batch", note)
    return float(found[1]) * 2**20 if found else None


def _stated_ports(text: str) -> float | None:
    """Return the one-way bandwidth out of a node that a text states, in bytes/s."""
    found = re.search(r"(\d+) Gb/s per node", text)
    if found:
        return float(found[1]) / 8 * 1e9
    links = re.search(r"Omni-Path (\d+) links", text)
    return float(links[1]) * 12.5e9 if links else None
