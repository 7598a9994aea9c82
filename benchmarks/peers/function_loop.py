"""The benchmarks' model and step as a user-defined training function: torch's FSDP, AdamW and clipping, and `run`.

With `on_shards`, clipping and AdamW are regroup's, which avoid DTensor's dispatch. The file is sent alone, like a
user's file, and is preloaded: `workload.function` is `function_loop:train`.
"""

from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

import regroup
from regroup.workers.models.transformer import build


def train(run: regroup.Context) -> None:
    """Predict the next byte."""
    given = run.args
    length = given["sequence"]
    data = b"".join(path.read_bytes() for path in sorted(Path(given["text"]).iterdir()))
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    model = build(given["model"], given["model"]["vocab_size"])
    for module in [*model.layers.values(), model]:
        fully_shard(module, mesh=run.mesh)
    on_shards = given["on_shards"]
    optimizer = (regroup.ShardAdamW if on_shards else torch.optim.AdamW)(
        model.parameters(), lr=given["lr"], betas=given["betas"], eps=given["eps"],
        weight_decay=given["weight_decay"], fused=True,
    )  # fmt: skip
    run.track(model=model, optimizer=optimizer)
    for _ in run.steps():
        total = 0.0
        for batch in run.micro_batches((len(text) - 1) // length):
            rows = torch.stack([text[i * length : (i + 1) * length + 1].long() for i in batch.indices])
            losses = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
            loss = (losses.view(len(rows), length).mean(1) * batch.weights).sum()
            loss.backward()
            total += loss.item()
        norm = (regroup.clip_grad_norm_ if on_shards else clip_grad_norm_)(model.parameters(), given["clip_norm"])
        optimizer.step()
        optimizer.zero_grad()
        run.report(loss=total, grad_norm=norm if isinstance(norm, float) else norm.full_tensor())  # pyright: ignore[reportAttributeAccessIssue]
