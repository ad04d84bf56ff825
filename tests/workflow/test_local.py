"""K-FAC in blocks: the curvature is that of each block's own objective."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scadl_core.admm.block import Block, Visit
from scadl_core.admm.engine import Engine
from scadl_core.admm.problem import Problem
from scadl_core.admm.rules import BlockADMM
from scadl_core.comm import World
from scadl_core.optim import KFAC
from scadl_core.workflow.local import LocalKFAC

RHO, ROWS = 0.3, 4096


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.0)


def iterated(nets: list[nn.Module], x: Tensor, y: Tensor) -> tuple[Engine, LocalKFAC]:
    local = LocalKFAC()
    rule = BlockADMM(penalty=RHO, optimizer=sgd, precondition=local)
    engine = Engine(Problem(nets, "cross_entropy"), rule)
    engine.iterate(Visit(0, x, y))
    return engine, local


def factor(optimizer: Any, name: str) -> Tensor:
    (layer,) = optimizer.layers.values()
    averages = optimizer.curvature.averages
    found: Tensor = averages.mean(layer, name)[0]
    return found


def test_factors_are_those_of_each_blocks_objective() -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(5, 4), nn.Linear(4, 3)
    x, y = torch.randn(ROWS, 5), torch.randint(0, 3, (ROWS,))
    engine, local = iterated([nn.Sequential(first), nn.Sequential(last)], x, y)
    hidden, head = (engine.blocks[n].optimizer for n in (0, 1))

    # rho/2 |W x - t|^2: the Hessian by the output is rho I, whatever the target; one draw of each
    # row's label is within a few times 1/sqrt(rows) of it.
    torch.testing.assert_close(factor(hidden, "G"), RHO * torch.eye(4), atol=0.03, rtol=0)
    with_bias = torch.cat([x, torch.ones(ROWS, 1)], 1)
    torch.testing.assert_close(factor(hidden, "A"), with_bias.T @ with_bias / ROWS)

    # The last one's is what K-FAC takes from the mean loss in anyone's loop.
    model = nn.Sequential(nn.Linear(4, 3))
    model.load_state_dict({"0.weight": last.weight, "0.bias": last.bias})
    plain = KFAC(model, sgd(model.parameters()), world=World())
    functional.cross_entropy(model(first(x).detach()), y).backward()
    plain.step()
    for name in ("A", "G"):
        torch.testing.assert_close(factor(head, name), factor(plain, name))
    assert local.inversions == 2


def test_damping_of_a_coupled_block_is_in_units_of_rho() -> None:
    engine, _ = iterated(
        [nn.Linear(5, 4), nn.Linear(4, 3)], torch.randn(8, 5), torch.randint(0, 3, (8,))
    )
    hidden, head = (engine.blocks[n].optimizer for n in (0, 1))
    assert isinstance(hidden, KFAC) and isinstance(head, KFAC)
    assert hidden.damping(0) == RHO * head.damping(0)
    engine.set_penalty(2 * RHO)
    assert hidden.damping(0) == 2 * RHO * head.damping(0)


def test_an_optimizer_made_anew_takes_the_place_of_the_old_one() -> None:
    engine, local = iterated(
        [nn.Linear(5, 4), nn.Linear(4, 3)], torch.randn(8, 5), torch.randint(0, 3, (8,))
    )
    block: Block = engine.blocks[0]
    hooks = len(block.module._forward_hooks)
    for _ in range(3):
        local(block, sgd(block.parameters()))
    assert len(block.module._forward_hooks) == hooks
