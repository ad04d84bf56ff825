"""Under ``torch.compile``: what the compiled graph saves, and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scadl_core.compress.blockscaled import packed_bytes
from scadl_core.errors import ActivationError
from scadl_core.memory import CompressedActivations
from scadl_core.memory.compiled import is_compiled

INPUT_NI = torch.randn(512, 64, generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 8)
    )


def gradients(module: nn.Module, loss: Tensor) -> Tensor:
    loss.backward()
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_a_compiled_graph_saves_codes_and_leaves_weights_alone() -> None:
    plain = network()
    exact = gradients(plain, plain(INPUT_NI).square().sum())
    errors = []
    for bits in (8, 4):
        torch._dynamo.reset()
        net = network()
        module = torch.compile(net, backend="aot_eager")
        assert is_compiled(module)
        assert not is_compiled(net)
        with CompressedActivations(module, bits=bits):
            output = module(INPUT_NI)
        saved = [(tuple(t.shape), t.dtype) for t in output.grad_fn.saved_tensors]
        codes = ((packed_bytes(512 * 128, bits),), torch.uint8)
        assert saved.count(codes) == 3  # both sides of ReLU are one; both of GELU
        floats = [shape for shape, dtype in saved if dtype is not torch.uint8]
        assert set(floats) == {(512, 64), (128, 128), (8, 128)}
        ours = gradients(net, output.square().sum())
        errors.append(float((ours - exact).norm() / exact.norm()))
    assert 0 < errors[0] < 0.02 < errors[1] < 0.3


def test_bits_that_there_are_not() -> None:
    with pytest.raises(ActivationError, match="one of"):
        CompressedActivations(network(), bits=3)
