"""Convert a nested state into plain JSON data plus named tensors, and back.

Objects with one key that starts with `$` encode types that JSON lacks: `{"$tensor": name}`, `{"$tuple": […]}`,
`{"$items": [[key, value], …]}` for keys that are not strings, and `{"$counter": …}`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor
from torch.distributed.tensor import DTensor

_TENSOR, _TUPLE, _ITEMS, _COUNTER = "$tensor", "$tuple", "$items", "$counter"


class StateError(Exception):
    """A state cannot be saved, or a saved state does not match its target."""


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
    return Lifted(_plain(value, name, tensors), tensors)


def put_back(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild a value that `lift` has split, with these tensors."""
    if isinstance(plain, list):
        return [put_back(item, tensors) for item in cast(list[Any], plain)]
    if not isinstance(plain, dict):
        return plain
    match cast(dict[str, Any], plain):
        case {"$tensor": str(name)}:
            return tensors[name]
        case {"$tuple": list(items)}:
            return tuple(put_back(item, tensors) for item in cast(list[Any], items))
        case {"$items": list(pairs)}:
            return {key: put_back(item, tensors) for key, item in cast(list[Any], pairs)}
        case {"$counter": list(pairs)}:
            return Counter(dict(cast(list[Any], pairs)))
        case entries:
            return {key: put_back(item, tensors) for key, item in entries.items()}


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


def _plain(value: object, at: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        if at in tensors:
            raise StateError(f"two tensors of the state are called {at!r}; use keys without dots")
        tensors[at] = value.detach()
        return {_TENSOR: at, "device": value.device.type, "sharded": isinstance(value, DTensor)}
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = [_plain(item, f"{at}.{number}", tensors) for number, item in enumerate(cast(list[Any], value))]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return _mapping(cast(Mapping[Any, Any], value), at, tensors)
    raise StateError(
        f"{at} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved: a state may contain "
        "tensors, numbers, strings, None, and lists, tuples and dicts of them; leave it out of state_dict() or "
        "convert it there"
    )


def _mapping(value: Mapping[Any, Any], at: str, tensors: dict[str, Tensor]) -> Any:
    for key in value:
        if type(key) not in (str, int, float, bool):
            raise StateError(f"{at} has a key of type {type(key).__qualname__}, {key!r}; use strings or numbers")
    items = [(key, _plain(item, f"{at}.{key}", tensors)) for key, item in value.items()]
    if isinstance(value, Counter):
        return {_COUNTER: [list(pair) for pair in items]}
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return dict(items)
    return {_ITEMS: [list(pair) for pair in items]}
