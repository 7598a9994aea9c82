"""Modules, optimizers and other objects with unusual state."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class ExtraState(nn.Linear):
    """A layer whose state is more than tensors, as torch documents it."""

    def __init__(self) -> None:
        super().__init__(6, 6)
        self.calls, self.history, self.scale = 0, collections.deque([0.0], maxlen=3), torch.ones(2)

    def get_extra_state(self) -> Any:
        return {"calls": self.calls, "history": self.history, "scale": self.scale, "raw": bytes([self.calls])}

    def set_extra_state(self, state: Any) -> None:
        assert state["raw"] == bytes([state["calls"]])
        self.calls, self.history, self.scale = state["calls"], state["history"], state["scale"]

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.history.append(float(self.calls))
        self.scale = self.scale * 1.01
        return super().forward(x) * (1 + 0.1 * self.calls) * self.scale.mean() + sum(self.history)


class Hooked(nn.Linear):
    """A layer that adds entries to its state_dict by overriding torch's methods."""

    def __init__(self) -> None:
        super().__init__(6, 6)
        self.seen: list[Tensor] = []

    def _save_to_state_dict(self, destination: Any, prefix: str, *args: Any) -> None:
        super()._save_to_state_dict(destination, prefix, *args)
        destination[prefix + "seen"] = self.seen

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        self.seen = list(state_dict.pop(prefix + "seen"))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().mean())
        return super().forward(x) + len(self.seen) + torch.stack(self.seen).sum()


class Graph(nn.Module):
    """A graph network with a sparse adjacency matrix that changes."""

    adjacency: Tensor

    def __init__(self, convert: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self._convert = nn.Linear(6, 6), convert
        self.register_buffer("adjacency", convert(torch.eye(4)))

    def forward(self, x: Tensor) -> Tensor:
        dense = self.adjacency.to_dense() * 1.5
        dense[0, 1] += 1  # another number of stored values than at first
        self.adjacency = self._convert(dense)
        return torch.sparse.mm(self.adjacency, self.linear(x))


class ReplacedBuffer(nn.Module):
    """A codebook that is replaced, and a queue that grows."""

    mean: Tensor
    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("queue", torch.zeros(1, 6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) + self.mean + self.queue.mean(0)
        self.mean = self.mean * 0.9 + y.detach().mean(0)
        self.queue = torch.cat([self.queue, y.detach()[:1]])
        return y


class Lora(nn.Module):
    """A frozen layer with a trained update of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.complex64) @ self.weight).abs()


class SparseEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedding(x.abs().long() % 9)


class Warm(torch.optim.SGD):
    """An optimizer with state under a key of its own."""

    def step(self, closure: Any = None) -> Any:
        own = self.state["global"]
        own["n"] = own.get("n", 0) + 1
        own["mean"] = own.get("mean", torch.zeros(2)) + 0.5
        for group in self.param_groups:
            group["lr"] = 0.01 / own["n"] + float(own["mean"].sum()) * 1e-3
        return super().step(closure)


class MovingAverage:
    """Averaged weights in an object that is not a module."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.weights = model, {name: value.detach().clone() for name, value in model.named_parameters()}

    def step(self) -> None:
        for name, value in self.model.named_parameters():
            self.weights[name].lerp_(value.detach(), 0.1)

    def state_dict(self) -> Any:
        return {"weights": self.weights}

    def load_state_dict(self, state: Any) -> None:
        self.weights = state["weights"]


class Everything:
    """A state with every type that a snapshot keeps."""

    def __init__(self) -> None:
        self.state: Any = {
            "array": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1],
            "scalar": np.float64(2.5),
            "set": {1, 2},
            "frozen": frozenset({"a"}),
            "ordered": collections.OrderedDict(b=1, a=2),
            "default": collections.defaultdict(list, {"a": [1]}),
            "counter": collections.Counter({4: 2}),
            "queue": collections.deque([1, 2], maxlen=2),
            "complex": 1 + 2j,
            "bytes": b"\0\xff",
            "empty": b"",
            "mutable": bytearray(b"x"),
            "size": torch.Size([2, 3]),
            "dtype": torch.bfloat16,
            "nan": float("nan"),
            "large": 10**40,
            "sparse": torch.eye(3).to_sparse(),
            "nested": [({"$tuple": (1, None)},)],
            1: {2.5: True},
        }

    def step(self) -> None:
        self.state["scalar"] += 1
        self.state["array"] = self.state["array"] * 2
        self.state["queue"].append(len(self.state["default"]["b"]))
        self.state["default"]["b"].append(1)

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state
