"""Pickling of functions with cloudpickle.

An error names the object that cannot be pickled, and the chain of references from the function to it.
"""

import contextlib
import importlib.metadata
import io
import linecache
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import cloudpickle

from regroup.api.client.operations.code_archive import format_mebibytes
from regroup.service.domain.errors import RegroupError

LIMIT_BYTES = 64 * 2**20
"""Largest size of a pickled function. Every node loads it into its zygote; data belongs in shared storage."""
_SHOWN = 3
_MAX_DEPTH = 8


class PickleError(RegroupError):
    """The function cannot be pickled in its current form."""


@dataclass(frozen=True)
class PickledFunction:
    """A pickled function with the sources of its code."""

    data: bytes
    sources: Mapping[str, list[str]]
    """Lines of the files or notebook cells that define it and the functions it calls, by file name."""


def pickle_function(function: Callable[..., Any], working_dir: Path | None = None) -> PickledFunction:
    """Pickle `function` with everything that it uses and that the nodes cannot import.

    Args:
        function: Function to pickle.
        working_dir: Folder that is uploaded with it; modules in it are importable on the nodes.

    Raises:
        PickleError: an object that it uses cannot be pickled, or the result is larger than `LIMIT_BYTES`.
    """
    writer = _Writer(working_dir)
    try:
        data = writer.write(function)
    except Exception as error:  # objects that cannot be pickled raise errors of any class
        raise PickleError(_why(function, error, working_dir)) from error
    if len(data) > LIMIT_BYTES:
        raise PickleError(
            f"{_name(function)} and the objects that it uses have {format_mebibytes(len(data))}; the limit is "
            f"{format_mebibytes(LIMIT_BYTES)}. Largest: {', '.join(_largest(function, working_dir))}. Put data in "
            "storage that the nodes can access, pass its path in args, and read it in the function"
        )
    return PickledFunction(data, writer.sources)


class _UnusableError(Exception):
    """The object can be pickled, but would not work on a node."""


class _Writer:
    def __init__(self, working_dir: Path | None) -> None:
        self.sources: dict[str, list[str]] = {}
        self._working_dir = working_dir

    def write(self, thing: object) -> bytes:
        """Pickle `thing`."""
        file = io.BytesIO()
        _Pickler(file, self._check).dump(thing)
        return file.getvalue()

    def _check(self, thing: Any) -> None:
        """Check an object before it is pickled, and collect its source.

        Raises:
            _UnusableError: the object would not work on a node.
        """
        if reason := _reason_unusable(thing):
            raise _UnusableError(reason)
        if isinstance(thing, FunctionType) and thing.__module__ == "__main__":
            file = thing.__code__.co_filename
            if lines := linecache.getlines(file):
                self.sources[file] = lines
        module = thing if isinstance(thing, ModuleType) else None
        if isinstance(thing, FunctionType | type):
            module = sys.modules.get(thing.__module__)
        if module is not None and (reason := _reason_not_importable(module, self._working_dir)):
            raise _UnusableError(reason)


class _Pickler(cloudpickle.CloudPickler):
    def __init__(self, file: io.BytesIO, check: Callable[[object], None]) -> None:
        super().__init__(file)
        self._check = check

    def reducer_override(self, obj: Any) -> Any:
        self._check(obj)
        return super().reducer_override(obj)


def _reason_unusable(thing: Any) -> str:
    """Return the reason why an object would not work in a rank although it can be pickled; empty if there is none."""
    kind = type(thing)
    home = str(kind.__module__)
    if home.partition(".")[0] == "ray":
        return f"a live {kind.__name__} of Ray; ranks are not connected to a Ray cluster"
    if home.startswith("regroup.api."):
        return f"a regroup {kind.__name__} with a connection to the server; pass the job's id in args instead"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor):
        device = thing.device
        if device.type not in ("cpu", "meta"):
            return f"a tensor on {device}; ranks have their own devices: call .cpu(), or create it in the function"
    return ""


def _reason_not_importable(module: ModuleType, working_dir: Path | None) -> str:
    """Return the reason why a node cannot import a module that is pickled by name; empty if there is none."""
    top = module.__name__.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or getattr(module, "__file__", None)
    if top in ("__main__", "regroup") or file is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        return ""
    path = Path(file).resolve()
    if _is_installed(path) or top in _distributed():
        return ""
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    if working_dir is not None and working_dir.resolve() == folder:
        return ""
    return f"module {top} in {path}, which the nodes do not have: use working_dir={str(folder)!r} to upload the folder"


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _installed_folders())


@cache
def _installed_folders() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(
        Path(folder).resolve()
        for folder in (
            *(sysconfig.get_path(name) for name in names),
            *site.getsitepackages(),
            site.getusersitepackages(),
        )
    )


@cache
def _distributed() -> frozenset[str]:
    """Return the names of all installed packages, including those in editable mode."""
    return frozenset(importlib.metadata.packages_distributions())


# ------------------------------------------------------------ error messages


def _why(function: Callable[..., Any], error: Exception, working_dir: Path | None) -> str:
    path, found = [_name(function)], error
    chain: list[object] = [function]
    while len(chain) < _MAX_DEPTH and not _reason_unusable(chain[-1]):
        for name, value in _used_by(chain[-1]):
            is_visited = any(value is thing for thing in chain)
            if not is_visited and (deeper := _error_of(value, working_dir)) is not None:
                path.append(f"{name} ({type(value).__name__})")
                chain.append(value)
                found = deeper
                break
        else:
            break
    uses = ", which uses ".join(path)
    if isinstance(found, _UnusableError):
        return f"{uses}: {found}"
    return f"{uses}: {found}. Create it inside the function on every rank, or pass plain data in args to create it from"


def _error_of(thing: object, working_dir: Path | None) -> Exception | None:
    try:
        _Writer(working_dir).write(thing)
    except Exception as error:
        return error
    return None


def _largest(function: Callable[..., Any], working_dir: Path | None) -> list[str]:
    sizes = {name: len(_Writer(working_dir).write(value)) for name, value in _used_by(function)}
    return [
        f"{name} ({format_mebibytes(size)})" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:_SHOWN]
    ]


def _used_by(thing: object) -> Iterator[tuple[str, object]]:
    """Yield the objects that an object references, with their names."""
    if isinstance(thing, partial):
        yield "its function", thing.func
        yield from ((f"argument {number}", value) for number, value in enumerate(thing.args))
        yield from thing.keywords.items()
    elif isinstance(thing, FunctionType):
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                yield name, cell.cell_contents
        names = sorted(_names_in(thing.__code__) & thing.__globals__.keys())
        yield from ((name, thing.__globals__[name]) for name in names)
        yield from (("a default", value) for value in thing.__defaults__ or ())
    elif isinstance(thing, dict):
        yield from ((repr(key), value) for key, value in cast(dict[object, object], thing).items())
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"item {number}", value) for number, value in enumerate(cast(list[object], thing)))
    elif isinstance(thing, type):
        yield from ((name, value) for name, value in vars(thing).items() if isinstance(value, FunctionType))
    elif not isinstance(thing, ModuleType):
        yield from getattr(thing, "__dict__", {}).items()


def _names_in(code: CodeType) -> set[str]:
    """Return the global names that code may use, including those in nested functions."""
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
