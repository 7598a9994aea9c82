"""`regroup.submit`: submit a function of this process as a job, from a module or a notebook cell.

The job's code archive contains the pickled function, the version of cloudpickle that wrote it, and a module
`regroup_submitted` that loads it (`workers/rank/submitted_function.py`). For the service this is a job of kind
`function`.
"""

import inspect
import json
import math
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import cloudpickle

from regroup.api.client.discovery import connect
from regroup.api.client.function_pickle import PickledFunction, pickle_function
from regroup.api.client.job import Job
from regroup.service.domain.errors import FieldIssue, SpecError

MODULE = "regroup_submitted"
"""Name of the module that contains the function on the nodes."""
_SOURCE = '''"""Written by regroup.submit: the function that was submitted."""

from pathlib import Path

from regroup.workers.rank.submitted_function import load

{name} = load(Path(__file__).parent)
'''
_DERIVED_FIELDS = {
    "workload": "it is the function",
    "code": "it is generated from the function; use working_dir to upload a folder as well",
    "training": "use steps, global_batch and micro_batch",
}


def submit(
    function: Callable[..., Any],
    *,
    steps: int,
    global_batch: int,
    micro_batch: int,
    name: str | None = None,
    dp: int | Mapping[str, int] | None = None,
    args: Mapping[str, Any] | None = None,
    preload: Sequence[str] = (),
    working_dir: str | Path | None = None,
    url: str | None = None,
    **spec: Any,
) -> Job:
    """Submit a training function, with everything that it uses, as a job.

    Args:
        function: Function with one argument, a `regroup.Context`; see docs/guides/functions.md.
        steps: Number of optimizer updates of the job.
        global_batch: Samples per step over all ranks, independent of their number.
        micro_batch: Samples per forward pass.
        name: Name of the job; None for the function's name.
        dp: Number of ranks, or {min, target, max}: `layout.dp` of the spec.
        args: Plain data for `run.args` of the function.
        preload: Modules that the zygote imports in advance, in addition to those of the function. This makes
            recoveries faster.
        working_dir: Folder to upload, from which the function can import modules.
        url: URL of the server; None for REGROUP_SERVER, or else this machine's server.
        spec: Other fields of a job spec, e.g. env, secrets, checkpoint, faults.

    Raises:
        SpecError: a field is invalid. The error names it.
        PickleError: the function uses an object that cannot be pickled. The error names it.
        ApiError: the server rejected the job. The error names the field.
    """
    _check_callable(function)
    attribute = _attribute(function)
    whole = _spec(name or _job_name(attribute), attribute, dp, args or {}, preload, spec)
    whole["training"] = {"steps": steps, "global_batch": global_batch, "micro_batch": micro_batch}
    folder = None if working_dir is None else Path(working_dir)
    packed = pickle_function(function, folder)
    with (
        connect(url or os.environ.get("REGROUP_SERVER"), patient=True) as client,
        tempfile.TemporaryDirectory(prefix="regroup-function-") as scratch,
    ):
        write(packed, attribute, Path(scratch))
        archive = client.upload_working_dir(folder or scratch, extra_folder=None if folder is None else Path(scratch))
        job = client.submit({**whole, "code": {"archive": archive}})
        return Job(job.id, url=client.url)


def write(packed: PickledFunction, name: str, folder: Path) -> None:
    """Write the function into `folder`, under `name`, as a module that depends only on regroup's workers."""
    package = folder / MODULE
    package.mkdir()
    about = {"python": platform.python_version(), "cloudpickle": cloudpickle.__version__, "sources": packed.sources}
    (package / "__init__.py").write_text(_SOURCE.format(name=name))
    (package / "about.json").write_text(json.dumps(about))
    (package / "function.pickle").write_bytes(packed.data)
    own = Path(str(cloudpickle.__file__)).parent
    shutil.copytree(own, package / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))


def _spec(
    name: str,
    attribute: str,
    dp: int | Mapping[str, int] | None,
    args: Mapping[str, Any],
    preload: Sequence[str],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    issues = [FieldIssue(key, f"cannot be set for a function: {why}", more[key])
              for key, why in _DERIVED_FIELDS.items() if key in more]  # fmt: skip
    if dp is not None and "layout" in more:
        issues.append(FieldIssue("layout", "conflicts with dp: remove one of them", more["layout"]))
    issues += _not_plain("args", args)
    if issues:
        raise SpecError(issues)
    layout = {} if dp is None else {"layout": {"dp": dp if isinstance(dp, int) else dict(dp)}}
    return {
        "name": name,
        "workload": {"kind": "function", "function": f"{MODULE}:{attribute}"},
        "args": dict(args),
        "preload": [*preload, MODULE],
        **layout,
        **more,
    }


def _not_plain(path: str, value: Any) -> list[FieldIssue]:
    """Return an issue for each part of `value` that JSON does not represent exactly."""
    if isinstance(value, Mapping):
        items = cast(Mapping[object, Any], value).items()
        invalid = [
            FieldIssue(path, "names of args must be strings", key) for key, _ in items if not isinstance(key, str)
        ]
        return invalid + [issue for key, inner in items for issue in _not_plain(f"{path}.{key}", inner)]
    if isinstance(value, list | tuple):
        return [
            issue
            for number, inner in enumerate(cast(Sequence[Any], value))
            for issue in _not_plain(f"{path}.{number}", inner)
        ]
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return []
    kind = type(value).__name__
    return [FieldIssue(path, f"is a {kind}; args can contain only finite numbers, strings, lists and mappings", value)]


def _check_callable(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise SpecError([FieldIssue("function", "is not callable: pass a function that takes a Context", function)])
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        message = "is a coroutine or generator function: pass a function that runs the training when it is called"
        raise SpecError([FieldIssue("function", message, function)])
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        message = f"must accept one argument, a regroup.Context: {error}"
        raise SpecError([FieldIssue("function", message, function)]) from None
    except ValueError:
        return  # a function in C may have no signature


def _attribute(function: Callable[..., Any]) -> str:
    name = str(getattr(function, "__name__", ""))
    return name if name.isascii() and name.isidentifier() and name != "load" else "function"


def _job_name(attribute: str) -> str:
    return re.sub("[^a-z0-9]+", "-", attribute.lower()).strip("-")[:63] or "function"
