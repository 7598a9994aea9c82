"""One job as a table for people: units, names instead of ids, and only numbers that have a basis. Pure."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regroup.api.live.formatting import duration, number, ranges, size_text
from regroup.api.live.job_view import step_text
from regroup.api.live.predictions import format_measured
from regroup.service.domain.byte_text import bytes_text

_NODES_SHOWN = 8
_RESULT_LENGTH = 200
"""Longest value of the result that is shown, in characters."""

Row = tuple[str, str]


def render_job(job: Mapping[str, Any]) -> list[Row]:
    """Return the rows for a job as the API describes it: label and value."""
    rows = [
        ("name", str(job["name"])),
        ("id", str(job["id"])),
        ("project", str(job["project"])),
        ("author", str(job.get("author") or "")),
        ("state", _state(job)),
        ("step", _step(job)),
        *_progress(job),
        *_place(job),
        *_requests(job),
        *_times(job),
        *_storage(job),
        *((str(link["name"]), str(link["url"])) for link in job.get("links") or ()),
        *_result(job),
        ("incidents", _incidents(job)),
    ]
    return [(label, value) for label, value in rows if value]


def _state(job: Mapping[str, Any]) -> str:
    why = ": ".join(str(job[key]) for key in ("reason", "message") if job.get(key))
    return f"{job['state']}" + (f" ({why})" if why else "")


def _step(job: Mapping[str, Any]) -> str:
    text = step_text(job["step"], job.get("steps"), is_estimated=bool(job.get("step_is_estimated")))
    left = job.get("eta_s")
    return text.removeprefix("step ") + ("" if left is None else f", {duration(left)} left")


def _progress(job: Mapping[str, Any]) -> list[Row]:
    loss, held_out = job.get("loss"), job.get("validation_loss")
    losses = ["" if loss is None else f"{loss:.4g}", "" if held_out is None else f"held-out {held_out:.4g}"]
    prediction = job.get("prediction")
    is_gpu = _device(job) == "cuda"
    return [
        ("loss", ", ".join(each for each in losses if each)),
        ("speed", _figure(job, "tokens_per_s", lambda value: f"{number(value)} tokens/s")),
        ("model FLOPs utilization", _figure(job, "mfu", _share) if is_gpu else ""),
        ("measured", ", ".join(format_measured(prediction)) if prediction else ""),
        ("peak memory", _figure(job, "peak_bytes", lambda value: f"{bytes_text(value)} in the largest rank")),
        (
            "waits for other ranks",
            _figure(job, "exposed_communication", lambda value: f"{_share(value)} of the newest forward and backward"),
        ),
        ("pipeline idle", _figure(job, "pipeline_idle", _share)),
        ("mirrored", _figure(job, "mirrored_step", lambda value: f"step {value}")),
        ("save", str((job.get("save") or {}).get("message", ""))),
        ("goodput", _figure(job, "goodput", _share)),
    ]


def _place(job: Mapping[str, Any]) -> list[Row]:
    kind = str((job.get("spec") or {}).get("workload", {}).get("kind", ""))
    layout = job.get("layout")
    nodes: dict[str, list[int]] = {}
    for rank in job.get("placement") or ():
        nodes.setdefault(str(rank.get("node_name") or rank.get("address") or "?"), []).append(int(rank["rank"]))
    shown = [f"{name}: {_ranks(ranks)}" for name, ranks in list(nodes.items())[:_NODES_SHOWN]]
    hidden = len(nodes) - len(shown)
    generation = job.get("generation")
    return [
        ("size", size_text(layout, kind) if layout else ""),
        ("generation", str(generation) if generation else ""),
        ("nodes", "; ".join(shown) + (f"; and {hidden} more" if hidden > 0 else "")),
    ]


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(sorted(ranks))}"


def _requests(job: Mapping[str, Any]) -> list[Row]:
    unmet = [f"{each['message'] or each['reason']}" for each in job.get("conditions") or () if not each["status"]]
    return [("requested", ", ".join(job.get("intents") or ())), ("problems", "; ".join(unmet))]


def _times(job: Mapping[str, Any]) -> list[Row]:
    created, started, finished = (job.get(f"{name}_at") for name in ("created", "started", "finished"))
    took = "" if started is None or finished is None else f", {duration(max(0.0, finished - started))} after the start"
    return [
        ("created", _time(created)),
        ("started", _time(started)),
        ("finished", _time(finished) + took if finished is not None else ""),
    ]


def _storage(job: Mapping[str, Any]) -> list[Row]:
    labels = ", ".join(f"{key}={value}" for key, value in (job.get("labels") or {}).items())
    return [
        ("labels", labels),
        ("storage", str(job.get("storage_uri") or "")),
        ("resumed from", str(job.get("resume_uri") or "")),
    ]


def _result(job: Mapping[str, Any]) -> list[Row]:
    rows = [("parameters", _figure(job, "parameter_count", number))]
    for name, value in (job.get("result") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        rows.append((f"result {name}", text if len(text) <= _RESULT_LENGTH else "see `regroup get --json`"))
    return rows + [(f"digest {name}", str(value)) for name, value in (job.get("digest") or {}).items() if value]


def _incidents(job: Mapping[str, Any]) -> str:
    count = len(job.get("incidents") or ())
    return f"{count}; `regroup why {job['id']}` explains them" if count else "0"


def _device(job: Mapping[str, Any]) -> str:
    return str((job.get("spec") or {}).get("resources", {}).get("device", ""))


def _figure(job: Mapping[str, Any], name: str, describe: Callable[[Any], object]) -> str:
    value = job.get(name)
    return "" if value is None else str(describe(value))


def _share(value: float) -> str:
    return f"{value:.0%}"


def _time(value: float | None) -> str:
    return "" if value is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
