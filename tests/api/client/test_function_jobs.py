"""`regroup.submit` and `regroup.Job` with the real app."""

import asyncio
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regroup
from regroup.api.client.connection.errors import ApiError
from regroup.api.client.function_jobs import MODULE
from regroup.api.client.job import JobNotSucceededError
from regroup.service.domain.errors import SpecError

SIZES = {"steps": 10, "global_batch": 4, "micro_batch": 2}


def my_training(run: regroup.Context) -> None:
    """Do nothing: no test calls this function."""


my_training.__module__ = "__main__"  # as if it were defined in a notebook


async def submit(live: Any, function: Callable[..., Any] = my_training, **fields: Any) -> regroup.Job:
    return await asyncio.to_thread(regroup.submit, function, url=live.url, **{**SIZES, **fields})


def contents(live: Any, address: str) -> dict[str, bytes]:
    folder = Path(live.services.settings.blob_uri.removeprefix("file://"))
    with tarfile.open(folder / "sha256" / address.removeprefix("sha256:")) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}  # type: ignore[union-attr]


async def test_a_function_is_a_job_of_kind_function_with_an_archive(live: Any, tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text("WIDTH = 3\n")
    more = {"dp": {"min": 1, "target": 2, "max": 2}, "args": {"lr": 0.1}, "preload": ["json"], "seed": 3}
    job = await submit(live, working_dir=tmp_path, checkpoint={"every_steps": 5}, **more)
    details = await asyncio.to_thread(lambda: job.details)
    spec = details.spec
    assert (job.id, job.name, details.name) == (details.id, "my-training", "my-training")
    assert (spec.workload.kind, getattr(spec.workload, "function", "")) == ("function", f"{MODULE}:my_training")
    assert spec.preload == ["json", MODULE] and spec.args == {"lr": 0.1} and spec.seed == 3
    assert (spec.layout.dp.target, spec.checkpoint.every_steps) == (2, 5)
    assert spec.training is not None and spec.training.global_batch == 4
    assert spec.code is not None
    found = contents(live, spec.code.archive)
    assert {"my_model.py", f"{MODULE}/__init__.py", f"{MODULE}/cloudpickle/cloudpickle.py"} <= found.keys()
    compile(found[f"{MODULE}/__init__.py"], "module", "exec")
    await asyncio.to_thread(job.close)


async def test_a_job_object_shows_the_state_and_cancels(live: Any, job_events: Any) -> None:
    job = await submit(live)
    await live.run(job.id)
    await live.report(job.id, job_events.step(1, 2, loss=1.5))
    same = await asyncio.to_thread(lambda: regroup.Job("my-training", url=live.url))
    assert same.id == job.id and repr(same) == f"regroup.Job('{job.id}', name='my-training')"
    rows = await asyncio.to_thread(job.steps)
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 2.0), (2, 1.5)]
    assert await asyncio.to_thread(lambda: (job.status, job.incidents)) == ("RUNNING", [])
    await asyncio.to_thread(job.cancel)
    assert (await asyncio.to_thread(lambda: job.details)).intents == {"cancel": True}


async def test_the_result_is_the_run_result_of_the_function(live: Any, job_events: Any) -> None:
    job = await submit(live)
    await live.run(job.id)
    left = {"step": 10, "parameters": "aa", "samples": "bb", "parameter_count": 3, "accuracy": 0.9}
    await live.report(job.id, ("result", 1, left), job_events.state("SUCCEEDED", "completed"))
    assert await asyncio.to_thread(job.result) == {"accuracy": 0.9}


async def test_the_result_of_a_failed_job_raises_with_its_traceback(live: Any, job_events: Any) -> None:
    job = await submit(live)
    await live.run(job.id)
    error = {"kind": "ValueError", "message": "bad", "traceback": "Traceback\n  File cell\nValueError: bad\n"}
    await live.report(job.id, job_events.state("FAILED", "user_error", error=error, message="ValueError: bad"))
    with pytest.raises(JobNotSucceededError, match=r"FAILED \(user_error\): ValueError: bad\n\nTraceback\n  File cell"):
        await asyncio.to_thread(job.result)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"args": {"model": {"depth": [1, object()]}}}, r"args\.model\.depth\.1: is a object; args can contain only"),
        ({"args": {"lr": float("nan")}}, r"args\.lr: is a float; args can contain only finite"),
        ({"code": {"working_dir": "."}}, "code: cannot be set for a function: .* use working_dir"),
        ({"training": {"steps": 3}}, "training: .* use steps, global_batch and micro_batch"),
        ({"dp": 2, "layout": {"dp": 2}}, "layout: conflicts with dp"),
    ],
)
async def test_an_invalid_field_is_named_before_any_request(live: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        await submit(live, **fields)


@pytest.mark.parametrize(
    ("fields", "path"),
    [({"global_batch": 5}, "global_batch"), ({"colour": "red"}, "colour"), ({"name": "My Job"}, "name")],
)
async def test_an_error_names_a_field_that_the_server_rejects(live: Any, fields: dict[str, Any], path: str) -> None:
    with pytest.raises(ApiError) as refused:
        await submit(live, **fields)
    assert any(path in f"{wrong.pointer} {wrong.detail}" for wrong in refused.value.problem.errors)


async def coroutine(run: regroup.Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: None, "one argument, a regroup.Context"),
        (coroutine, "is a coroutine or generator function"),
        ("train", "not callable"),
    ],
)
async def test_an_object_that_is_not_a_training_function_is_rejected(live: Any, function: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        await submit(live, function)


async def test_a_folder_with_a_reserved_module_name_is_rejected(live: Any, tmp_path: Path) -> None:
    (tmp_path / MODULE).mkdir()
    (tmp_path / MODULE / "__init__.py").touch()
    with pytest.raises(Exception, match=f"contains {MODULE}"):
        await submit(live, working_dir=tmp_path)


def test_importing_regroup_imports_neither_torch_nor_ray() -> None:
    code = "import sys, regroup; print([m for m in ('torch', 'ray', 'httpx2', 'pydantic', 'rich') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
