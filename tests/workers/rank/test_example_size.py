"""Size of the examples that run unmodified."""

import ast
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MOST = 15


def code_of(name: str) -> list[str]:
    """Lines of code without docstrings, comments and blank lines."""
    tree = ast.parse((EXAMPLES / name).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return [line for line in ast.unparse(tree).splitlines() if line]


def test_a_plain_fsdp_loop_becomes_a_function_by_few_lines() -> None:
    plain, function = code_of("plain_fsdp.py"), code_of("function_fsdp.py")
    changes = [
        part for part in SequenceMatcher(None, plain, function, autojunk=False).get_opcodes() if part[0] != "equal"
    ]
    written = [line for _, _, _, first, end in changes for line in function[first:end]]
    assert 0 < len(written) <= MOST, "\n".join(written)
    assert len(function) <= len(plain), "more goes away than comes"
    guide = (EXAMPLES.parent / "docs" / "guides" / "functions.md").read_text()
    assert f"{len(written)} lines are new or different" in " ".join(guide.split())


@pytest.mark.slow
def test_the_plain_loop_is_one_that_runs() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "plain_fsdp.py")], capture_output=True, text=True, timeout=120, check=True
    )
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(losses) == 100 and losses[-1] < 0.5 * losses[0]
