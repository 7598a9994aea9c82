"""The loss of labels, without parallelism."""

import torch

from regroup.workers.data.sampler import IGNORED
from regroup.workers.parallel.loss import label_loss, loss_scope, value_of
from regroup.workers.parallel.mesh import meshes_of
from tests.support.machines.one_rank import one_rank


def test_it_is_the_sum_over_labels_that_count() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1, IGNORED, 4], [0, 2, IGNORED]])
    expected = sum(
        float(logits[row, column].exp().sum().log() - logits[row, column, labels[row, column]])
        for row, column in ((0, 0), (0, 2), (1, 0), (1, 1))
    )
    with one_rank(), loss_scope(meshes_of({}, "cpu", sharded=False)):
        torch.testing.assert_close(float(label_loss(logits, labels)), expected)
    one_label_each = logits[:, 0], labels[:, 0]
    assert float(label_loss(*one_label_each)) < expected


def test_halves_are_summed_in_float32_and_the_value_has_no_graph() -> None:
    logits = torch.zeros(4, 8, dtype=torch.bfloat16, requires_grad=True)
    loss = label_loss(logits, torch.zeros(4, dtype=torch.int64))
    assert loss.dtype == torch.float32
    assert loss.requires_grad
    assert not value_of(loss).requires_grad
    assert float(value_of(loss)) == float(loss.detach())
