"""Random generators that a fork copies: each process of a zygote draws numbers of its own, as under torchrun.

The modules that a zygote imports may seed a generator on purpose. Under torchrun every rank imports them and seeds it
alike, so such a generator keeps its state here. All others are renewed in the child: those of Python, NumPy and torch,
and the private ones that modules created while they were imported.
"""

import contextlib
import gc
import importlib
import random
import sys
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass
class _Found:
    """Generators of this process. A fork copies it, so a child knows those of all processes before it."""

    python: list[weakref.ref[random.Random]] = field(default_factory=list[weakref.ref[random.Random]])
    """Private generators of Python that the operating system seeded."""
    python_state: Any = None
    """State of Python's own generator, if a module seeded it."""
    numpy: list[Any] = field(default_factory=list[Any])
    """Private bit generators of NumPy that the operating system seeded."""
    torch_seed: int | None = None
    """First seed of torch's own generator, which the operating system gave it."""
    is_torch_seeded: bool = False
    """A module seeded torch's own generator."""


_found = _Found()


@contextlib.contextmanager
def watched_imports() -> Generator[Callable[[], None]]:
    """Note how the modules that the caller imports seed generators. The caller calls the result after each import."""
    of_python, of_numpy = _PythonSeeds(), _NumpySeeds()

    def after_import() -> None:
        of_numpy.begin()
        torch_generator = _torch_generator()
        if _found.torch_seed is None and torch_generator is not None:
            _found.torch_seed = torch_generator.initial_seed()

    after_import()
    try:
        yield after_import
    finally:
        of_python.end()
        of_numpy.end()
        if (torch_generator := _torch_generator()) is not None:
            _found.is_torch_seeded |= torch_generator.initial_seed() != _found.torch_seed


def renew() -> None:
    """Give this child other random numbers than its parent and siblings, except where a module seeded a generator."""
    if _found.python_state is not None:
        random.setstate(_found.python_state)  # Python has renewed it in the fork
    for reference in _found.python:
        if (generator := reference()) is not None:
            generator.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        own: Any = numpy_random.mtrand._rand
        if _seed_sequence(own._bit_generator) is not None:
            own.seed()
    for generator in _found.numpy:
        if _seed_sequence(generator) is not None:
            generator.__init__()  # in place: a `numpy.random.Generator` has it
    if (torch_generator := _torch_generator()) is not None and not _found.is_torch_seeded:
        torch_generator.seed()  # `torch.seed` would touch devices


class _PythonSeeds:
    """Notes calls of `seed` of Python's generators, until `end`."""

    def __init__(self) -> None:
        self._of_class, self._of_own = random.Random.seed, random.seed
        self._is_own_seeded = False
        original = self._of_class

        def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
            original(self, a, version)
            _found.python = [each for each in _found.python if each() not in (None, self)]
            if a is None:
                _found.python.append(weakref.ref(self))

        cast(Any, random.Random).seed, random.seed = seed, self._seed_own

    def end(self) -> None:
        random.Random.seed, random.seed = self._of_class, self._of_own
        if self._is_own_seeded:
            _found.python_state = random.getstate()

    def _seed_own(self, a: Any = None, version: int = 2) -> None:
        self._of_own(a, version)
        self._is_own_seeded = a is not None


class _NumpySeeds:
    """Notes the entropy that NumPy requests from the operating system, once it is imported, until `end`."""

    def __init__(self) -> None:
        self._module: Any = None
        self._randbits: Any = None
        self._entropy: set[int] = set()

    def begin(self) -> None:
        if self._module is None and "numpy" in sys.modules:  # numpy imports this part only at its first use
            module: Any = importlib.import_module("numpy.random.bit_generator")
            if hasattr(module, "randbits"):
                self._module, self._randbits, module.randbits = module, module.randbits, self._request

    def end(self) -> None:
        if self._module is None:
            return
        self._module.randbits = self._randbits
        if self._entropy:
            kind: Any = sys.modules["numpy.random"].BitGenerator
            # Objects may compute `__class__`, which `isinstance` reads.
            generators: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), kind)]
            _found.numpy += [
                each for each in generators if getattr(_seed_sequence(each), "entropy", 0) in self._entropy
            ]

    def _request(self, count: int) -> int:
        entropy = self._randbits(count)
        self._entropy.add(entropy)
        return entropy


def _seed_sequence(generator: Any) -> Any:
    """Return the seed sequence of a bit generator of NumPy; None after `seed(number)`."""
    return generator.seed_seq if hasattr(generator, "seed_seq") else generator._seed_seq


def _torch_generator() -> Any:
    return getattr(sys.modules.get("torch.random"), "default_generator", None)
