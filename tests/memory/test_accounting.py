"""Bytes that autograd keeps, counted by hand from the formulas of the derivatives; bytes alive."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scadl_core.memory import AliveBytes, SavedBytes

FLOAT = 4


def saved(function: object, module: nn.Module | None = None) -> int:
    with SavedBytes(module) as measurement:
        assert callable(function)
        function()
    return measurement.bytes


def test_a_chain_keeps_its_input_and_what_each_layer_needs() -> None:
    """Batch 4. A linear layer needs its input; ReLU its output, which the next layer needs too."""
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    input_BI = torch.randn(4, 3)
    expected = (4 * 3 + 4 * 5) * FLOAT
    assert saved(lambda: net(input_BI), net) == expected
    # d(y^2) needs y; the sum needs nothing.
    assert saved(lambda: net(input_BI).square().sum(), net) == expected + 4 * 2 * FLOAT


def test_parameters_and_buffers_are_held_anyway() -> None:
    input_BI = torch.randn(4, 3, requires_grad=True)
    linear = nn.Linear(3, 5)
    assert saved(lambda: linear(input_BI), linear) == 4 * 3 * FLOAT
    assert saved(lambda: linear(input_BI)) == (4 * 3 + 5 * 3) * FLOAT
    norm = nn.BatchNorm1d(3).eval()  # saves its running statistics, which are buffers
    assert saved(lambda: norm(input_BI), norm) == 4 * 3 * FLOAT


def test_views_of_one_storage_count_once_and_in_whole() -> None:
    leaf_N = torch.randn(6, requires_grad=True)

    def product_of_halves() -> Tensor:
        shifted_N = leaf_N + 1  # saves nothing
        return shifted_N[:3] * shifted_N[3:]  # saves both halves

    assert saved(product_of_halves) == 6 * FLOAT

    def product_with_itself() -> Tensor:
        shifted_N = leaf_N + 1
        return shifted_N.view(2, 3) * shifted_N.view(2, 3).flip(0)  # flip copies

    assert saved(product_with_itself) == 2 * 6 * FLOAT

    base_N = torch.randn(1000)
    assert saved(lambda: leaf_N * base_N[:6]) == 1000 * FLOAT  # it is the storage that is kept


def test_in_place_operations_keep_their_result() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True))
    input_BI = torch.randn(4, 3)
    assert saved(lambda: net(input_BI), net) == (4 * 3 + 4 * 5) * FLOAT
    leaf_N = torch.randn(6, requires_grad=True)
    assert saved(lambda: (leaf_N + 1).exp_()) == 6 * FLOAT


def test_other_dtypes_and_more_than_one_forward_pass() -> None:
    leaf_N = torch.randn(6, dtype=torch.float64, requires_grad=True)
    with SavedBytes() as measurement:
        kept = leaf_N.exp()
        assert measurement.bytes == 6 * 8
        again = leaf_N.exp()
    assert measurement.bytes == 2 * 6 * 8
    assert kept.shape == again.shape
    leaf_N.exp()  # outside of the block
    assert measurement.bytes == 2 * 6 * 8


def test_gradients_are_the_same_to_the_bit() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3)
    )
    image_BCHW, label_BHW = torch.randn(2, 2, 8, 8), torch.randint(0, 3, (2, 4, 4))

    def gradients() -> list[Tensor]:
        net.zero_grad()
        nn.functional.cross_entropy(net(image_BCHW), label_BHW).backward()
        return [p.grad for p in net.parameters() if p.grad is not None]

    plain = [gradient.clone() for gradient in gradients()]
    with SavedBytes(net):
        measured = gradients()
    assert len(plain) == 6
    assert all(torch.equal(one, other) for one, other in zip(plain, measured, strict=True))


def test_the_most_that_is_alive_at_a_time() -> None:
    input_N = torch.zeros(10)  # made before, so not counted
    with AliveBytes() as alive:
        first_N = input_N + 1
        second_N = first_N.view(2, 5) * 2  # a view takes nothing
        del first_N
        assert alive.most == 20 * FLOAT
        second_N.repeat(2, 1).sum()  # 10 + 20, then 1 more
    assert alive.most == 31 * FLOAT
    assert float(second_N.sum()) == 20


def test_what_is_alive_in_a_network_that_keeps_nothing() -> None:
    net = nn.Sequential(nn.Conv2d(1, 8, 1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    with torch.no_grad(), AliveBytes() as alive:
        net(torch.zeros(1, 1, 10, 10))
    assert alive.most == (8 + 8) * 100 * FLOAT + 100 * FLOAT  # both sides of ReLU; and the input
