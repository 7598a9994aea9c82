"""Pickling of functions: the objects included, and errors that name invalid objects."""

import socket
import sys
import threading
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from regroup.api.client import function_pickle
from regroup.api.client.client import Client
from regroup.api.client.function_pickle import PickleError, pickle_function


def in_a_cell(source: str, **names: Any) -> Callable[..., Any]:
    """Return the function `train` of a notebook cell with this source."""
    names = {"__name__": "__main__", **names}
    exec(compile(source, "<cell>", "exec"), names)
    return names["train"]


def test_globals_closures_and_functions_of_other_cells_are_pickled() -> None:
    rate = 0.5
    scaled = in_a_cell("def train(x):\n    return factor * x", factor=3)

    def train(x: float) -> float:
        return rate * scaled(x)

    train.__module__ = "__main__"
    assert cloudpickle.loads(pickle_function(train).data)(2) == 3.0
    assert cloudpickle.loads(pickle_function(partial(train, 4)).data)() == 6.0


@pytest.mark.parametrize(
    ("make", "because"),
    [
        (threading.Lock, r"lock\): cannot pickle '_thread.lock' object\. Create it inside"),
        (socket.socket, r"socket\): cannot pickle 'socket' object"),
        (Client, r"Client\): a regroup Client with a connection to the server; pass the job's id"),
    ],
)
def test_an_error_names_an_object_that_cannot_be_pickled(make: Callable[[], Any], because: str) -> None:
    thing = make()
    with pytest.raises(PickleError, match=rf"train, which uses mine \({because}"):
        pickle_function(in_a_cell("def train(run):\n    return mine", mine=thing))
    if not isinstance(thing, type(threading.Lock())):
        thing.close()


def test_an_error_names_the_references_to_the_object() -> None:
    deep = in_a_cell("class Store:\n    pass\ndef train(run):\n    return store", lock=threading.Lock())
    deep.__globals__["store"] = deep.__globals__["Store"]()
    deep.__globals__["store"].parts = {"guard": [deep.__globals__["lock"]]}

    def train(run: Any) -> Any:
        return deep(run)

    train.__module__ = "__main__"
    with pytest.raises(PickleError) as refused:
        pickle_function(train)
    way = str(refused.value).split(":")[0]
    assert way == (
        "train, which uses deep (function), which uses store (Store), which uses parts (dict), "
        "which uses 'guard' (list), which uses item 0 (lock)"
    )


def test_a_tensor_is_pickled_on_the_host_and_rejected_on_a_device() -> None:
    with pytest.raises(PickleError, match=r"weights \(FakeOnCuda\): a tensor on cuda:0; ranks have their own devices"):
        pickle_function(in_a_cell("def train(run):\n    return weights", weights=FakeOnCuda(torch.zeros(2))))
    train = in_a_cell("def train(run):\n    return weights", weights=torch.arange(3))
    assert cloudpickle.loads(pickle_function(train).data)(None).tolist() == [0, 1, 2]


class FakeOnCuda(torch.Tensor):
    """A tensor that claims to be on a GPU, which this machine may not have."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)


def test_live_objects_of_ray_are_rejected() -> None:
    handle = types.new_class("ActorHandle")
    handle.__module__ = "ray.actor"
    with pytest.raises(PickleError, match=r"actor \(ActorHandle\): a live ActorHandle of Ray"):
        pickle_function(in_a_cell("def train(run):\n    return actor", actor=handle()))


def test_a_module_of_the_notebooks_folder_needs_working_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text("WIDTH = 7\ndef width():\n    return WIDTH\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_model  # type: ignore[import-not-found]

    for source, names in (
        ("def train(run):\n    return my_model.width()", {"my_model": my_model}),
        ("def train(run):\n    return width()", {"width": my_model.width}),
    ):
        train = in_a_cell(source, **names)
        with pytest.raises(PickleError, match=rf"module my_model in .*my_model\.py, .* working_dir='{tmp_path}'"):
            pickle_function(train)
        assert cloudpickle.loads(pickle_function(train, tmp_path).data)(None) == 7
        cloudpickle.register_pickle_by_value(my_model)
        try:
            data = pickle_function(train).data
        finally:
            cloudpickle.unregister_pickle_by_value(my_model)
        with monkeypatch.context() as elsewhere:
            elsewhere.delitem(sys.modules, "my_model")
            elsewhere.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
            assert cloudpickle.loads(data)(None) == 7


def test_installed_modules_are_pickled_by_name() -> None:
    import numpy

    train = in_a_cell("def train(run):\n    return numpy, torch.nn, json", numpy=numpy, torch=torch, json=types)
    assert len(pickle_function(train).data) < 2000


def test_an_error_names_the_largest_data_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_pickle, "LIMIT_BYTES", 2**20)
    train = in_a_cell("def train(run):\n    return table, note", table=bytes(2**20), note="small")
    with pytest.raises(
        PickleError,
        match=r"train and the objects that it uses have 1\.0 MiB; .* Largest: table \(1\.0 MiB\), note \(0\.0 MiB\)",
    ):
        pickle_function(train)
