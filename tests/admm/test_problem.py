"""A network as a problem, its data, how its penalty changes, and what ranks leave behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scadl_core.admm import Data, Problem, Stopping, fit
from scadl_core.admm.carry import pack, unpack
from scadl_core.admm.data import order
from scadl_core.admm.growth import grown
from scadl_core.admm.penalties import LossTriggered, ResidualBalanced
from scadl_core.admm.problem import cut
from scadl_core.admm.rules import PdADMM
from scadl_core.admm.wire import Wire
from scadl_core.comm import World
from scadl_core.compress import Absolute
from scadl_core.errors import ConfigError, LaunchError


def kinds(blocks: list[nn.Sequential]) -> list[list[str]]:
    return [[type(module).__name__ for module in block] for block in blocks]


def test_a_layer_ends_with_its_activation() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(9, 8), nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 4), nn.Flatten(),
    )  # fmt: skip
    assert kinds(cut(net)) == [
        ["Conv2d", "BatchNorm2d", "ReLU"],
        ["MaxPool2d", "Flatten", "Linear"],
        ["Linear", "Tanh"],
        ["Dropout", "Linear", "Flatten"],
    ]
    assert [module for block in cut(net, 2) for module in block] == list(net)


def test_what_cannot_be_cut_is_named() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    with pytest.raises(ConfigError, match="TransformerEncoderLayer does not say how"):
        Problem(nn.TransformerEncoderLayer(4, 1), "squared")
    with pytest.raises(ConfigError, match=r"expected 1 to 2 \(layers\), got 3"):
        Problem(net, "squared", blocks=3)
    with pytest.raises(ConfigError, match="did you mean 'squared'"):
        Problem(net, "square")
    with pytest.raises(ConfigError, match="no layer with a weight"):
        Problem(nn.Sequential(nn.ReLU()), "squared")
    with pytest.raises(ConfigError, match="no rule is called 'admm'"):
        fit(Problem(net, "squared"), Data.of(torch.ones(2, 3), torch.ones(2, 2)), rule="admm")
    with pytest.raises(LaunchError, match="started by torchrun; start with `mpirun -n 2"):
        fit(Problem(net, "squared"), Data.of(torch.ones(2, 3), torch.ones(2, 2)),
            World(size=2, launcher="torchrun"))  # fmt: skip


def test_a_tuple_comes_back_from_one_tensor() -> None:
    parts = (torch.randn(3, 2, 4), torch.randn(3), torch.randn(3, 5))
    packed, shapes = pack(parts)
    assert packed.shape == (3, 14)
    back = unpack(packed, shapes)
    assert all(torch.equal(a, b) for a, b in zip(parts, back, strict=True))


def test_every_sample_is_in_one_batch_and_every_epoch_visits_all() -> None:
    data = Data.of(torch.arange(11), torch.arange(11), 4, seed=1)
    assert sorted(torch.cat(data.batches).tolist()) == list(range(11))
    assert [len(batch) for batch in data.batches] == [4, 4, 3]
    orders = [order(3, 1, epoch) for epoch in range(6)]
    assert orders[0] == [0, 1, 2] and all(sorted(it) == [0, 1, 2] for it in orders)
    visits, later = data.visits(), data.visits(first=4)
    numbers = [next(visits).batch for _ in range(9)]
    assert numbers[4:] == [next(later).batch for _ in range(5)]


def test_error_feedback_keeps_the_sum_of_messages() -> None:
    """What was said after n messages differs from what was meant by one message's error."""
    generator = torch.Generator().manual_seed(0)
    wire, said, meant = Wire(Absolute(0.05)), torch.zeros(300), torch.zeros(300)
    for _ in range(20):
        value = torch.randn(300, generator=generator)
        message = wire.message(0, value)
        said, meant = said + message.value, meant + value
        assert message.nbytes < value.nbytes
    assert (said - meant).abs().max() <= 0.05 * 1.001


def test_identity_layers_change_nothing() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    deep, x = grown(net, 5), torch.randn(7, 4)
    assert sum(isinstance(it, nn.Linear) for it in deep) == 5
    torch.testing.assert_close(deep(x), net(x), rtol=0, atol=0)


def test_penalties_change_as_published() -> None:
    rule, rho, seen = LossTriggered(), 1e-2, []
    for loss in (3.0, 2.0, 1.0, 0.9995, 0.9994, 0.5, 0.5, 0.5):
        rho = rule.update(rho, {"loss": 2 * loss, "samples": 2.0})
        seen.append(rho)
    assert seen == pytest.approx([0.01] * 4 + [0.1, 0.1, 0.1, 1.0])
    balanced = ResidualBalanced()
    assert balanced.update(1.0, {"primal": 101.0, "dual": 1.0}) == 2.0
    assert balanced.update(1.0, {"primal": 1.0, "dual": 101.0}) == 0.5
    assert balanced.update(1.0, {"primal": 99.0, "dual": 1.0}) == 1.0


def test_small_residuals_end_a_training() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    data = Data.of(torch.randn(9, 3).double(), torch.randn(9, 2).double())
    rule = PdADMM(penalty=0.5, nu=0.1)
    fitted = fit(Problem(net, "squared"), data, rule=rule, iterations=5000,
                 stopping=Stopping(1e-3))  # fmt: skip
    assert fitted.stopped and len(fitted.trace) < 5000
    for row in fitted.trace[-3:]:
        assert max(row["primal"], row["dual"] / 0.25) <= 1e-6 * row["scale"]
