"""A rank's heap keeps what a step frees."""

import subprocess
import sys

import pytest

_STEPS = """
import resource
import torch
from regroup.workers.rank.malloc_tuning import retain_freed_memory

if {kept}:
    retain_freed_memory()

def step():
    return [torch.ones(1 << 18) for _ in range(64)]

step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5)
"""
_PAGES = 64 * (1 << 20) // 4096


@pytest.mark.parametrize(("kept", "least", "most"), [(True, 0.0, 0.02), (False, 0.1, 2.0)])
def test_pages_are_mapped_once_and_not_at_every_step(kept: bool, least: float, most: float) -> None:
    """Check that 64 tensors of 1 MiB reuse their pages; without the settings, each step maps new ones."""
    done = subprocess.run(
        [sys.executable, "-c", _STEPS.format(kept=kept)], capture_output=True, text=True, check=True, timeout=60
    )
    assert least * _PAGES <= float(done.stdout) <= most * _PAGES
