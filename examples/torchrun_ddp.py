"""Plain PyTorch: DistributedDataParallel under torchrun, with its own checkpoints. The code does not depend on regroup.

torchrun --standalone --nproc-per-node 4 examples/torchrun_ddp.py --folder /tmp/ddp
regroup run --nproc-per-node 4 examples/torchrun_ddp.py --folder /tmp/ddp-too
"""

import argparse
import gc
import hashlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Parse the arguments, join the process group, train, and leave the group."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("torchrun_ddp"), help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()

    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if use_cuda else "cpu")
    dist.init_process_group("nccl" if use_cuda else "gloo")
    train(args, device)
    gc.collect()  # DDP's groups are in reference cycles, and torch 2.13 may abort if they are freed at exit
    dist.destroy_process_group()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """Train a small network to imitate a fixed network, and resume from the newest checkpoint if there is one."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device).requires_grad_(False)
    student = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)).to(device)
    # Without the flag DDP rearranges its buckets after the first step of each start, and sums in another order. A
    # resumed run would then differ in the last bits from a run without interruption.
    model = DistributedDataParallel(student, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    newest, done = args.folder / "checkpoint.pt", 0
    if newest.exists():
        saved = torch.load(newest, map_location=device)
        student.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
        print(f"rank {rank} resumes after step {done}", flush=True)

    for step in range(done + 1, args.steps + 1):
        numbers = torch.Generator().manual_seed(1000 * step + rank)  # different samples for every rank and step
        x = torch.randn(32, 16, generator=numbers).to(device)
        loss = nn.functional.mse_loss(model(x), teacher(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % args.save_every == 0 or step == args.steps):
            save({"model": student.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, newest)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    if rank == 0:
        whole = b"".join(value.cpu().numpy().tobytes() for value in student.state_dict().values())
        print(f"parameters {hashlib.sha256(whole).hexdigest()}", flush=True)


def save(state: dict[str, object], path: Path) -> None:
    """Replace `path` atomically, so that it is always a complete checkpoint, even if this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    torch.save(state, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
