"""Data types of parameters, computation and sums in each precision."""

import pytest
import torch

from regroup.workers.parallel.mesh import meshes_of
from regroup.workers.parallel.precision import autocast, fsdp_policy, master_dtype, reduce_dtype, stream_dtype
from tests.support.machines.one_rank import one_rank

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize(
    ("precision", "kept", "computed"), [("fp16", F32, F16), ("bf16", F32, BF16), ("fp32", F32, F32), ("fp64", F64, F64)]
)
def test_parameters_keep_full_precision_whatever_is_computed_with(
    precision: str, kept: torch.dtype, computed: torch.dtype
) -> None:
    assert (master_dtype(precision), stream_dtype(precision)) == (kept, computed)
    assert reduce_dtype(precision, "fp32") == kept, "sums lose nothing unless asked"
    assert reduce_dtype(precision, "bf16") == BF16


def test_fsdp_gathers_halves_and_casts_no_inputs() -> None:
    half = fsdp_policy("bf16", "fp32")
    assert (half.param_dtype, half.reduce_dtype, half.cast_forward_inputs) == (BF16, F32, False)
    assert fsdp_policy("fp32", "fp32").param_dtype is None, "parameters have the type of the computation"


@pytest.mark.parametrize(
    ("precision", "is_sharded", "dtype"), [("bf16", False, BF16), ("bf16", True, F32), ("fp32", False, F32)]
)
def test_only_a_replicated_model_of_halves_is_cast_by_operation(
    precision: str, is_sharded: bool, dtype: torch.dtype
) -> None:
    with one_rank(), autocast(precision, meshes_of({}, "cpu", sharded=is_sharded), "cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
