"""PyTorch Lightning: DDP over all ranks, a checkpoint after every epoch, and resumption from the last one.

The code does not depend on regroup.

torchrun --standalone --nproc-per-node 2 examples/lightning_ddp.py --folder /tmp/lightning
regroup run --nproc-per-node 2 examples/lightning_ddp.py --folder /tmp/lightning-too
"""

import argparse
import hashlib
import os
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Imitation(pl.LightningModule):
    """A small network that learns to imitate a fixed network."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of one batch."""
        x, y = batch
        loss = nn.functional.mse_loss(self.student(x), y)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self) -> None:
        """Print the progress."""
        if self.trainer.is_global_zero:
            print(f"step {self.global_step} loss {self.trainer.callback_metrics['loss']:.4f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer, whose state is included in the checkpoint."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    """Train to the last epoch, and resume from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("lightning_ddp"), help="folder of the checkpoints")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()

    pl.seed_everything(0)
    teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).requires_grad_(False)
    x = torch.randn(320, 16)
    loader = DataLoader(TensorDataset(x, teacher(x)), batch_size=32, shuffle=True)

    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        # Without the flag DDP rearranges its buckets after the first step of each start, and sums in another order.
        # A resumed run would then differ in the last bits from a run without interruption.
        strategy=DDPStrategy(find_unused_parameters=True),
        callbacks=[ModelCheckpoint(args.folder, save_last=True, enable_version_counter=False)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Imitation()
    trainer.fit(model, loader, ckpt_path="last")

    if trainer.is_global_zero:
        whole = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
        print(f"parameters {hashlib.sha256(whole).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
