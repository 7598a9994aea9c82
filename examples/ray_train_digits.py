"""Plain Ray Train: a TorchTrainer with its own checkpoints, on generated digits. The code does not depend on regroup.

python examples/ray_train_digits.py --folder /tmp/ray-train-itself
regroup run --ray-train examples/ray_train_digits.py --folder /tmp/ray-train
"""

import argparse
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

DIGITS, SIDE = 10, 8


def noisy_digits(count: int) -> TensorDataset:
    """Generate samples of digits: each digit is a pattern of 8 × 8 dots, and its samples differ by noise."""
    numbers = torch.Generator().manual_seed(0)
    patterns = torch.randn(DIGITS, SIDE * SIDE, generator=numbers)
    labels = torch.randint(DIGITS, (count,), generator=numbers)
    return TensorDataset(patterns[labels] + 1.5 * torch.randn(count, SIDE * SIDE, generator=numbers), labels)


def train(config: dict[str, Any]) -> str:
    """Run the training loop of a worker, and return a digest of the parameters."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, DIGITS))
    # Without the flag DDP rearranges its buckets after the first step of each start, and sums in another order. A
    # resumed run would then differ in the last bits from a run without interruption.
    model = ray.train.torch.prepare_model(network, parallel_strategy_kwargs={"find_unused_parameters": True})
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    loader = DataLoader(noisy_digits(config["samples"]), batch_size=config["batch"], shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    context, done = ray.train.get_context(), 0

    if (newest := ray.train.get_checkpoint()) is not None:
        with newest.as_directory() as folder:
            saved = torch.load(Path(folder) / "state.pt")
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["epoch"]
        print(f"rank {context.get_world_rank()} resumes after epoch {done}", flush=True)

    for epoch in range(done + 1, config["epochs"] + 1):
        if context.get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        losses: list[Tensor] = []
        for samples, labels in loader:
            loss = nn.functional.cross_entropy(model(samples), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        metrics = {"epoch": epoch, "loss": torch.stack(losses).mean().item()}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if context.get_world_rank() == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, Path(folder) / "state.pt")
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)

    whole = b"".join(value.cpu().numpy().tobytes() for value in network.state_dict().values())
    return hashlib.sha256(whole).hexdigest()


def main() -> None:
    """Train, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="/tmp/ray-train-digits", help="folder of the run and its checkpoints")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"lr": args.lr, "epochs": args.epochs, "samples": 512, "batch": 32},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            name="digits",
            storage_path=args.folder,
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    result = trainer.fit()
    assert result.metrics is not None
    print(f"epoch {result.metrics['epoch']} loss {result.metrics['loss']:.6f}")
    print(f"parameters {result.return_value}")


if __name__ == "__main__":
    main()
