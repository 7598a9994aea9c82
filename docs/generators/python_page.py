"""Pages of the Python client and of `regroup.Context`, from signatures and docstrings. Nothing of torch is imported."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from generators.source import ROOT, attribute_docs, find_class
from regroup.api.client.async_client import AsyncClient
from regroup.api.client.client import Client
from regroup.api.client.job import Job

_CLIENT = """# Python client

`regroup.api.client.client.Client` calls the REST API with the nouns and verbs of the command line. `regroup.Job` is
a handle for one job, made for notebooks. `regroup.submit` submits a function; see
[Notebooks](../guides/notebooks.md). `make docs` writes this page from the docstrings.

```python
from regroup.api.client.client import Client

with Client("http://127.0.0.1:8500") as client:
    job = client.get("pretrain-cpython")
    print(job.state, job.step)
```
"""
_ASYNC_CLIENT = """## AsyncClient

`regroup.api.client.async_client.AsyncClient` is the client for asyncio. Its methods have the names, arguments and
results of those of `Client`, and they are coroutines. These are asynchronous iterators: {iterators}.

```python
import asyncio

from regroup.api.client.async_client import AsyncClient


async def follow(job: str) -> None:
    async with AsyncClient("http://127.0.0.1:8500") as client:
        async for event in client.events(job, follow=True):
            print(event.type, event.data)


asyncio.run(follow("pretrain-cpython"))
```
"""
_CONTEXT = """# regroup.Context

The platform passes a `Context` to the training function of a job of kind `function`.
[Functions](../guides/functions.md) is the guide. `make docs` writes this page from the docstrings.

```python
def train(run):
    model, optimizer = ...
    run.track(model=model, optimizer=optimizer)
    for step in run.steps(100):
        for batch in run.micro_batches(len(dataset)):
            x, y = dataset[batch.indices]
            loss = (cross_entropy(model(x), y, reduction="none") * batch.weights).sum()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.report(loss=loss.item())
```
"""
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields):$", re.MULTILINE)


def render_client() -> str:
    """Return the page of the client."""
    function = next(
        node
        for node in ast.parse((ROOT / "api/client/function_jobs.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "submit"
    )
    parts = [_CLIENT]
    parts += _class(Client)
    iterators = [
        name for name, each in vars(AsyncClient).items() if inspect.isasyncgenfunction(each) or _iterates(each)
    ]
    parts += [_ASYNC_CLIENT.format(iterators=", ".join(f"`{name}`" for name in iterators))]
    parts += _class(Job)
    parts += ["## submit\n", *_function(function, "regroup")]
    return "\n".join(parts)


def render_context() -> str:
    """Return the page of the context."""
    node = find_class(ROOT / "workers/rank/context.py", "Context")
    constructor = next(each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    rows = [
        f"| `{name}` | {' '.join(text.split())} |"
        for name, text in attribute_docs(constructor).items()
        if not name.startswith("_")
    ]
    table = ["## Attributes\n", "| attribute | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join([_CONTEXT, *table, "## Properties and methods\n", *_members(node, "run")])


def _class(kind: type) -> list[str]:
    """Return the parts of a class and of its public members."""
    parts = [f"## {kind.__name__}\n", inspect.cleandoc(kind.__doc__ or "") + "\n"]
    for path, name in _homes(kind):
        parts += _members(find_class(path, name), kind.__name__)
    return parts


def _iterates(member: object) -> bool:
    """Return True for a method that returns an asynchronous iterator."""
    return str(getattr(member, "__annotations__", {}).get("return", "")).startswith("collections.abc.AsyncIterator")


def _homes(kind: type) -> Iterator[tuple[Path, str]]:
    """Yield the file and the name of a class and of each base class of this project."""
    for each in kind.__mro__:
        if each.__module__.startswith("regroup."):
            path = Path(inspect.getsourcefile(each) or "").resolve()
            yield path, each.__name__


def _members(node: ast.ClassDef, owner: str) -> list[str]:
    """Return the parts of all public members that have a docstring, in the order of the source."""
    found: list[str] = []
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
            found += _function(member, owner)
    return found


def _function(node: ast.FunctionDef, owner: str) -> list[str]:
    """Return the heading, signature and docstring of a function."""
    decorators = {ast.unparse(each) for each in node.decorator_list}
    is_property = bool(decorators & {"property", "cached_property"})
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    signature = f"{owner}.{node.name}" + (returns.replace(" -> ", ": ") if is_property else f"({arguments}){returns}")
    return [f"### {owner}.{node.name}\n", f"```text\n{signature}\n```\n", _markdown(ast.get_docstring(node) or "")]


def _markdown(docstring: str) -> str:
    """Return a docstring in Google style as Markdown: sections become lists."""
    lines: list[str] = []
    is_list = False
    for line in docstring.splitlines():
        if _SECTION.match(line):
            is_list = True
            lines += [f"**{line.rstrip(':')}**", ""]
        elif is_list and line.startswith("    ") and not line.startswith("     "):
            name, colon, text = line.strip().partition(": ")
            lines.append(f"- `{name}`: {text}" if colon else f"- {name}")
        elif is_list and line.strip():
            lines.append(f"  {line.strip()}")
        else:
            is_list = is_list and not line.strip()
            lines.append(line)
    return "\n".join(lines).strip() + "\n"
