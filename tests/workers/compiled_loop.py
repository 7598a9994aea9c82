"""Memory that compiled blocks record for the backward pass, measured in a separate process.

The compiler's imports conflict with some imports of a test process.
"""

import torch

from regroup.workers.models import build_model
from regroup.workers.models.transformer import rotary
from regroup.workers.parallel.compile import compile_blocks
from regroup.workers.parallel.parallelize import initialise

CONFIG = {
    "family": "transformer", "dim": 64, "layers": 1, "heads": 4, "kv_heads": 4, "ffn_dim": 512, "vocab_size": 32,
    "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": False,
}  # fmt: skip


def kept(context):
    """Measure the bytes kept without a limit and within a share, and the difference of a gradient."""
    whole, gradient = kept_bytes(None)
    part, same = kept_bytes(0.3)
    difference = float((same - gradient).norm() / gradient.norm())
    context.result = {"whole": whole, "part": part, "difference": difference}


def kept_bytes(share):
    """Return the bytes that a compiled block keeps for its backward pass, without its parameters, and a gradient."""
    torch.compiler.reset()
    model = build_model(CONFIG, 32).to_empty(device="cpu")
    initialise(model, 0)
    compile_blocks(model.layers, "default", share)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    found = {}

    def record(tensor):
        if tensor.data_ptr() not in own:
            found[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = model.embed(torch.arange(4 * 64).view(4, 64) % 32).detach().requires_grad_()  # pyright: ignore[reportCallIssue]
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        y = model.layers["0"](x, rotary(64, 16, 1e4, torch.device("cpu")))  # pyright: ignore[reportCallIssue]
    y.square().sum().backward()
    return sum(found.values()), model.layers["0"].ffn.gate.weight.grad  # pyright: ignore[reportAttributeAccessIssue]
