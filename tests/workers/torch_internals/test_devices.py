"""Computations on the CPU that query no other device."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regroup.workers.torch_internals.devices import no_device_queries


def test_fake_tensors_query_no_device_in_the_block_and_do_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = list[str]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(queries.append("asked")))
    with no_device_queries(), FakeTensorMode():
        assert (torch.zeros(2, 3) @ torch.zeros(3, 4)).shape == (2, 4)
        assert not torch.cuda.is_available()
    assert queries == []
    with pytest.raises(RuntimeError), no_device_queries():
        raise RuntimeError
    with FakeTensorMode():
        assert queries, "the query is back"
