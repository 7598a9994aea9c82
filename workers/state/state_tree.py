"""Convert a nested state into plain JSON data plus named tensors, and back, without a change of any type.

Objects with one key that starts with `$` encode types that JSON lacks: `{"$tensor": name}`, `{"$tuple": […]}`,
`{"$items": [[key, value], …]}` for keys that are not strings, and so on. Any other type is refused by name: a value
that comes back as another type would change what the program does.
"""

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from regroup.workers.state.state_error import StateError
from regroup.workers.state.tensor_kind import compressed_parts, is_sparse, reason_to_refuse

MAX_DEPTH = 100
"""Most levels of a state. A state that contains itself has no end."""

_TENSOR, _ITEMS = "$tensor", "$items"
_PLAIN_TYPES = (type(None), bool, int, float, str)
_FACTORIES: Mapping[str, Callable[[], Any]] = {"list": list, "dict": dict, "set": set, "int": int, "float": float}
_ALLOWED = (
    "tensors, numbers, strings, bytes, None, numpy arrays, and lists, tuples, sets, deques and dicts of them; leave it "
    "out of state_dict() or convert it there"
)


@dataclass(frozen=True)
class Lifted:
    """Plain data, and the tensors to which it refers by name."""

    plain: Any
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])


def lift(value: object, name: str) -> Lifted:
    """Split a value into plain data and tensors. A tensor is named `name` plus the keys that lead to it.

    Raises:
        StateError: A part is neither a tensor nor plain data; the message names its path.
    """
    tensors: dict[str, Tensor] = {}
    return Lifted(_plain(value, name, tensors, 0), tensors)


def put_back(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild a value that `lift` has split, with these tensors."""
    if isinstance(plain, list):
        return [put_back(item, tensors) for item in cast(list[Any], plain)]
    if not isinstance(plain, dict):
        return plain
    entries = cast(dict[str, Any], plain)
    if _TENSOR in entries:
        return tensors[entries[_TENSOR]]
    kind = next(iter(entries), "")
    if kind not in _REBUILD:
        return {key: put_back(item, tensors) for key, item in entries.items()}
    return _REBUILD[kind](put_back(entries[kind], tensors), entries)


@dataclass(frozen=True)
class Leaf:
    """Reference to a tensor in plain data."""

    name: str
    device_type: str
    sharded: bool


def leaves(plain: Any) -> list[Leaf]:
    """Return every tensor reference in plain data."""
    if isinstance(plain, list):
        return [leaf for item in cast(list[Any], plain) for leaf in leaves(item)]
    if not isinstance(plain, dict):
        return []
    entries = cast(dict[str, Any], plain)
    if _TENSOR in entries:
        return [Leaf(entries[_TENSOR], entries["device"], entries["sharded"])]
    return [leaf for item in entries.values() for leaf in leaves(item)]


def _plain(value: object, at: str, tensors: dict[str, Tensor], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise StateError(f"{at[:200]} is nested in more than {MAX_DEPTH} levels; a state must not contain itself")
    if type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, Tensor):
        return _tensor(value, at, tensors, depth)

    def items(values: Iterable[object]) -> list[Any]:
        return [_plain(item, f"{at}.{number}", tensors, depth + 1) for number, item in enumerate(values)]

    match value:
        case list() if type(value) is list:  # pyright: ignore[reportUnknownArgumentType]
            return items(cast(list[object], value))
        case tuple() if type(value) is tuple:  # pyright: ignore[reportUnknownArgumentType]
            return {"$tuple": items(cast(tuple[object, ...], value))}
        case torch.Size():
            return {"$size": list(value)}
        case set() | frozenset() if type(value) in (set, frozenset):  # pyright: ignore[reportUnknownArgumentType]
            return {f"${type(value).__name__}": items(cast(set[object], value))}
        case deque():
            ends = cast(deque[object], value)
            return {"$deque": items(ends), "maxlen": ends.maxlen}
        case bytes() | bytearray():
            content = (
                torch.frombuffer(bytearray(value), dtype=torch.uint8) if value else torch.empty(0, dtype=torch.uint8)
            )
            return {f"${type(value).__name__}": _tensor(content, at, tensors, depth)}
        case complex():
            return {"$complex": [value.real, value.imag]}
        case torch.dtype():
            return {"$dtype": str(value).removeprefix("torch.")}
        case Mapping():
            return _mapping(cast(Mapping[Any, Any], value), at, tensors, depth)
        case _:
            return _from_numpy(value, at, tensors, depth)


def _tensor(value: Tensor, at: str, tensors: dict[str, Tensor], depth: int) -> Any:
    if reason := reason_to_refuse(value):
        raise StateError(f"{at} is {reason}")
    if value.layout is torch.sparse_coo:
        value = value.detach()
        parts = {"indices": value._indices(), "values": value._values()}  # also of a tensor that is not coalesced
        saved = {key: _tensor(part, f"{at}.{key}", tensors, depth) for key, part in parts.items()}
        return {"$sparse_coo": saved, "size": list(value.shape), "coalesced": value.is_coalesced()}
    if is_sparse(value):
        parts = compressed_parts(value.detach())
        saved = {key: _tensor(part, f"{at}.{key}", tensors, depth) for key, part in parts.items()}
        return {"$sparse": saved, "size": list(value.shape), "layout": str(value.layout).removeprefix("torch.")}
    if at in tensors:
        raise StateError(f"two tensors of the state are called {at!r}; use keys without dots")
    tensors[at] = value.detach()
    return {_TENSOR: at, "device": value.device.type, "sharded": isinstance(value, DTensor)}


def _mapping(value: Mapping[Any, Any], at: str, tensors: dict[str, Tensor], depth: int) -> Any:
    for key in value:
        if type(key) not in (str, int, float, bool):
            raise StateError(f"{at} has a key of type {type(key).__qualname__}, {key!r}; use strings or numbers")
    items = [[key, _plain(item, f"{at}.{key}", tensors, depth + 1)] for key, item in value.items()]
    kind = type(value)
    if kind is Counter:
        return {"$counter": items}
    if kind is OrderedDict:
        return {"$ordered": items}
    if kind is defaultdict:
        factory = cast(defaultdict[Any, Any], value).default_factory
        name = "" if factory is None else getattr(factory, "__name__", "")
        if factory is not None and _FACTORIES.get(name) is not factory:
            raise StateError(
                f"{at} is a defaultdict whose default_factory, {factory!r}, cannot be saved; use one of "
                f"{', '.join(_FACTORIES)}, or a dict"
            )
        return {"$defaultdict": items, "factory": name}
    if kind is not dict:
        raise _refusal(value, at)
    if all(type(key) is str and not key.startswith("$") for key in value):
        return dict(items)
    return {_ITEMS: items}


def _from_numpy(value: object, at: str, tensors: dict[str, Tensor], depth: int) -> Any:
    numpy = sys.modules.get("numpy")  # a job's own Python may have torch and no numpy
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        raise _refusal(value, at)
    array = numpy.ascontiguousarray(value)
    try:
        content = torch.from_numpy(array.copy() if not array.flags.writeable else array)
    except TypeError as error:
        raise StateError(f"{at} is a numpy array of type {array.dtype}, which cannot be saved; convert it") from error
    kind = "$numpy_scalar" if isinstance(value, numpy.generic) else "$numpy"
    # `ascontiguousarray` makes an array of one dimension from a scalar.
    return {kind: _tensor(content.reshape(cast(Any, value).shape), at, tensors, depth)}


def _refusal(value: object, at: str) -> StateError:
    kind = type(value)
    return StateError(
        f"{at} is a {kind.__module__}.{kind.__qualname__}, which cannot be saved: a state may contain {_ALLOWED}"
    )


def _dict_of(pairs: Any) -> dict[Any, Any]:
    return dict(cast(list[Any], pairs))


def _default_dict(pairs: Any, entries: Mapping[str, Any]) -> defaultdict[Any, Any]:
    return defaultdict(_FACTORIES.get(entries["factory"]), _dict_of(pairs))


def _sparse_coo(parts: Any, entries: Mapping[str, Any]) -> Tensor:
    with _checked():
        return torch.sparse_coo_tensor(
            parts["indices"], parts["values"], entries["size"], is_coalesced=entries["coalesced"] or None
        )


def _sparse(parts: Any, entries: Mapping[str, Any]) -> Tensor:
    layout = getattr(torch, entries["layout"])
    with _checked():
        return torch.sparse_compressed_tensor(
            parts["compressed"], parts["plain"], parts["values"], entries["size"], layout=layout
        )


def _checked() -> AbstractContextManager[Any]:
    """Check the indices of sparse tensors. torch before 2.13 warns if an argument requests this."""
    return torch.sparse.check_sparse_tensor_invariants()


_REBUILD: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "$tuple": lambda items, _: tuple(items),
    "$size": lambda items, _: torch.Size(items),
    "$set": lambda items, _: set(items),
    "$frozenset": lambda items, _: frozenset(items),
    "$deque": lambda items, entries: deque(items, entries["maxlen"]),
    "$bytes": lambda content, _: content.numpy().tobytes() if "numpy" in sys.modules else bytes(content.tolist()),
    "$bytearray": lambda content, _: bytearray(content.tolist()),
    "$complex": lambda parts, _: complex(*parts),
    "$dtype": lambda name, _: getattr(torch, name),
    "$items": lambda pairs, _: _dict_of(pairs),
    "$counter": lambda pairs, _: Counter(_dict_of(pairs)),
    "$ordered": lambda pairs, _: OrderedDict(_dict_of(pairs)),
    "$defaultdict": _default_dict,
    "$numpy": lambda content, _: content.numpy(),
    "$numpy_scalar": lambda content, _: content.numpy()[()],
    "$sparse_coo": _sparse_coo,
    "$sparse": _sparse,
}
