"""Random specs at the ends of all bounds, most of them valid, and a job's row."""

from typing import Any

from hypothesis import strategies as st

from regroup.service.domain.states import JobState
from regroup.service.spec.types import MAX_DURATION_S, MAX_RANKS, MAX_SAMPLES, MAX_SIZE_BYTES, MAX_STEPS
from regroup.service.store.rows.records import JobRow

_DURATIONS = st.sampled_from([0.001, 1, 90.5, "15m", "3650d", MAX_DURATION_S]) | st.floats(0.001, MAX_DURATION_S)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20)
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def ends(smallest: int, largest: int) -> st.SearchStrategy[int]:
    """Numbers of a range: its ends, powers of two and their neighbours, and any other."""
    near = {smallest, largest, *(number + by for number in (1, 2, 8, 64, 1024, 65536) for by in (-1, 0, 1))}
    return st.sampled_from(sorted(each for each in near if smallest <= each <= largest)) | st.integers(
        smallest, largest
    )


def _some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def _ranges(draw: st.DrawFn, largest: int) -> int | dict[str, int]:
    if draw(st.booleans()):
        return draw(ends(1, min(8, largest)))
    low, target, high = sorted(draw(st.tuples(*[ends(1, largest)] * 3)))
    return {"min": low, "target": target, "max": high}


_OPTIMIZERS = _some({
    "name": st.sampled_from(["adamw", "sgd"]), "lr": st.sampled_from([1e-12, 1e-4, 0.1, 9]),
    "betas": st.sampled_from([[0, 0], [0.9, 0.999999], [0, 0.5]]), "eps": st.sampled_from([1e-30, 1e-8, 1]),
    "momentum": st.sampled_from([0, 0.999]), "weight_decay": st.sampled_from([0, 0.1]),
    "clip_norm": st.sampled_from([None, 1e-12, 1e12]),
})  # fmt: skip
_COMMON = _some({
    "labels": st.dictionaries(st.text("abc./-_", min_size=1, max_size=128), st.just("v"), max_size=3),
    "owner": st.just("a person"), "env": st.dictionaries(st.text("AB_", min_size=1), _TEXTS, max_size=3),
    "resources": _some({
        "cpus": ends(1, 4096), "memory": st.sampled_from([1, "2GiB", "1.5T", MAX_SIZE_BYTES]),
        "device": st.sampled_from(["cpu", "cuda"]),
    }),
    "topology": _some({
        "required": st.sampled_from(["zone", "block", "rack"]), "preferred": st.sampled_from(["node", "gpu_domain"]),
        "spread": st.just("node"), "tp_within": st.sampled_from(["node", "gpu_domain"]),
    }),
    "max_duration": _DURATIONS, "max_queue_time": _DURATIONS, "hold_on_failure": st.sampled_from([0.001, "1d"]),
    "priority": st.sampled_from(["low", "normal", "high", "critical"]),
    "preemptibility": st.sampled_from(["auto", "none", "semi", "full"]),
    "recovery": _some({
        "budgets": _some({"hang": ends(0, 1_000_000), "user_error": ends(0, 1_000_000)}), "window": _DURATIONS,
        "refill_steps": ends(1, MAX_STEPS), "spares": ends(0, 16),
        "hang": _some({"after": _DURATIONS | st.sampled_from(["auto", "off"]), "first_step": _DURATIONS}),
    }),
})  # fmt: skip
_STATE = _some({
    "seed": ends(0, 2**63 - 1), "determinism": st.sampled_from(["default", "strict"]),
    "snapshot": _some({"every_steps": ends(1, MAX_STEPS), "mirror": st.sampled_from(["auto", "off"])}),
    "checkpoint": _some({"every_steps": ends(1, MAX_STEPS), "every": _DURATIONS, "keep_last": ends(1, 100_000)}),
})  # fmt: skip


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Return a spec of any workload."""
    kind = draw(st.sampled_from(["script", "function", "builtin", "convnet", "auto"]))
    spec = {"name": "gpt", **draw(_COMMON)}
    if kind == "script":
        steps = draw(
            _some(
                {
                    "steps": ends(1, MAX_STEPS),
                    "role": st.sampled_from(["a", "é" * 64]),
                    "args": st.lists(_TEXTS, max_size=3),
                }
            )
        )
        workload = {"kind": draw(st.sampled_from(["script", "ray_train"])), "entrypoint": "/a.py", **steps}
        return {**spec, "workload": workload, "layout": {"dp": draw(_ranges(MAX_RANKS))}}
    micro_batch, count = draw(ends(1, 4096)), draw(ends(1, 4096))
    training: dict[str, Any] = {
        "global_batch": micro_batch * count, "micro_batch": micro_batch, "steps": draw(ends(1, MAX_STEPS)),
    }  # fmt: skip
    layout: dict[str, Any] = {"dp": draw(_ranges(min(count, MAX_RANKS)))}
    spec |= draw(_STATE)
    if kind == "function":
        args = draw(st.dictionaries(_TEXTS, _PLAIN, max_size=3))
        workload = {"kind": "function", "function": "mine:train"}
        return {**spec, "workload": workload, "training": training, "layout": layout, "args": args}
    training |= {"optimizer": draw(_OPTIMIZERS), "precision": draw(st.sampled_from(["fp32", "bf16", "fp64"]))}
    if kind == "convnet":
        model = {"family": "convnet", "classes": draw(ends(1, 2**24)), "layers": draw(ends(1, 10_000)),
                 "norm_over": draw(st.sampled_from(["micro_batch", "global_batch"]))}  # fmt: skip
        data: dict[str, Any] = {"prepare": {"format": "jsonl", "train": ["/x"], "function": "mine:images"}}
        return {**spec, "training": training, "layout": layout,
                "workload": {"kind": "builtin", "model": model, "data": data}}  # fmt: skip
    heads = draw(st.sampled_from([1, 2, 8, 1024]))
    model = {"heads": heads, "dim": heads * draw(st.sampled_from([2, 64, 1024])), "layers": draw(ends(1, 10_000)),
             "vocab_size": draw(ends(1, 2**24))}  # fmt: skip
    training |= {"sequence": draw(ends(1, 2**24))}
    if draw(st.booleans()):
        training |= {"schedule": {"warmup_steps": draw(ends(0, training["steps"] - 1))}}
    workload = {"kind": "builtin", "model": model, "data": {"train": ["/x"]}}
    if kind == "auto":
        layout = {"auto": {"ranks": draw(_ranges(MAX_RANKS) | st.just("all"))}}
        return {**spec, "workload": workload, "training": training, "layout": layout}
    layout |= draw(
        _some({
            "data_parallel": st.sampled_from(["fsdp", "zero2", "zero1", "ddp"]), "tp": st.sampled_from([1, 2, 8, 1024]),
            "pp": st.sampled_from([1, 2, 4]), "dp_shard": ends(1, 64), "sequence_parallel": st.booleans(),
            "schedule": st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b", "zbv"]), "prefetch": ends(1, 8),
        })
    )  # fmt: skip
    assert training["global_batch"] <= MAX_SAMPLES
    return {**spec, "workload": workload, "training": training, "layout": layout}


def queued_row(spec: dict[str, Any], job_id: str = "job_1") -> JobRow:
    """Return the row of a queued job with this spec."""
    return JobRow(
        id=job_id, project="default", name=spec["name"], owner="", spec=spec, storage_uri="file:///s", resume_uri=None,
        state=JobState.QUEUED, reason="submitted", message="", error=None, version=1, revision=1, intents={},
        conditions=(), phase=None, created_at=0.0, queued_at=10.0, started_at=None, finished_at=None, generation=0,
        layout=None, step=0, step_rows=0, loss=None, validation_loss=None, tokens_per_s=None, step_duration_s=None,
        stall_s=0.0, mfu=None, exposed_communication=None, peak_bytes=None, pipeline_idle=None, mirrored_step=None,
        goodput=None, result=None, rank_phases={}, supervisor_boot_id="", acked_seq=0,
    )  # fmt: skip
