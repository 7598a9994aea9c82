"""Hugging Face transformers and accelerate: a tiny GPT-2 with random initial weights and its own checkpoints.

The code does not depend on regroup and downloads nothing. The text is the source of the Python standard library, and a
token is a byte.

torchrun --standalone --nproc-per-node 2 examples/transformers_accelerate.py --folder /tmp/transformers
regroup run --nproc-per-node 2 examples/transformers_accelerate.py --folder /tmp/transformers-too
"""

import argparse
import hashlib
import json
import shutil
import sysconfig
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

WINDOW = 64


def main() -> None:
    """Train to the last step, and resume from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--folder", type=Path, default=Path("transformers_accelerate"), help="folder of the checkpoints"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=8, metavar="WINDOWS", help="number of windows per rank")
    args = parser.parse_args()

    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),  # otherwise accelerate treats ranks on CPU as separate runs
        # The order of the samples depends only on seed and epoch, so that a resumed run uses the same order.
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
        # Without this, DDP sums in another order after its first step, and a resumed run would differ in the last bits.
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    set_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=WINDOW, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(
        TensorDataset(windows()), batch_size=args.batch, shuffle=True, drop_last=True, generator=torch.Generator()
    )
    # accelerate steps the schedule once per rank.
    total = args.steps * accelerator.num_processes
    schedule = get_linear_schedule_with_warmup(optimizer, total // 10, total)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    done = 0
    if newest := newest_checkpoint(args.folder):
        accelerator.load_state(str(newest))
        done = json.loads((newest / "progress.json").read_text())["step"]
        print(f"rank {accelerator.process_index} resumes after step {done}", flush=True)

    model.train()
    while done < args.steps:
        epoch, seen = divmod(done, len(loader))
        loader.set_epoch(epoch)
        for (tokens,) in accelerator.skip_first_batches(loader, seen) if seen else loader:
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
            if done % args.save_every == 0 or done == args.steps:
                save(accelerator, args.folder, done)
            if done % 10 == 0:
                accelerator.print(f"step {done} loss {loss.item():.4f}", flush=True)
            if done == args.steps:
                break

    whole = b"".join(value.cpu().numpy().tobytes() for value in accelerator.unwrap_model(model).state_dict().values())
    accelerator.print(f"parameters {hashlib.sha256(whole).hexdigest()}", flush=True)
    accelerator.end_training()


def windows() -> torch.Tensor:
    """Return some modules of the standard library, divided into windows of bytes."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = b"".join((folder / f"{name}.py").read_bytes() for name in ("argparse", "ast", "datetime", "difflib"))
    count = len(text) // WINDOW
    return torch.frombuffer(bytearray(text[: count * WINDOW]), dtype=torch.uint8).view(count, WINDOW).long()


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint with the highest step, or None."""
    return max(folder.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")), default=None)


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Save a checkpoint that is complete even if a rank dies: it is renamed when all ranks have written it."""
    unfinished = folder / "unfinished"
    if accelerator.is_main_process:
        shutil.rmtree(unfinished, ignore_errors=True)  # leftovers of a rank that died
    accelerator.wait_for_everyone()
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (unfinished / "progress.json").write_text(json.dumps({"step": step}))
        older = newest_checkpoint(folder)
        unfinished.rename(folder / f"step-{step}")
        if older:
            shutil.rmtree(older)
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
