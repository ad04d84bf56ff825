"""What goes wrong in training leaves no trace but a counter; a stopped training goes on exactly."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scadl_core.comm import World
from scadl_core.errors import ConfigError, RunError
from scadl_core.optim import KFAC, factors

Plain = Callable[..., KFAC]


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def backward(model: nn.Module, step: int = 0, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 4, generator=generator)
    y = torch.randint(3, (8,), generator=generator)
    (nn.functional.cross_entropy(model(x), y) * scale).backward()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def run(model: nn.Module, optimizer: Any, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()


def test_a_batch_without_samples_is_no_statistics() -> None:
    model = network()
    optimizer = KFAC(model)
    run(model, optimizer, range(3))
    optimizer.zero_grad()
    nothing = model(torch.randn(0, 4)).sum() + 0 * sum(p.sum() for p in model.parameters())
    nothing.backward()
    before = weights(model)
    optimizer.step()
    assert not torch.equal(weights(model), before)  # momentum goes on
    assert optimizer.report()["refused"] == 0


def test_parameters_that_are_added_later_count() -> None:
    model, extra = network(), nn.Parameter(torch.zeros(3))
    optimizer = KFAC(model)
    optimizer.add_param_group({"params": [extra]})
    for value, changed in ((1.0, True), (float("nan"), False)):
        before = weights(model), extra.detach().clone()
        optimizer.zero_grad()
        backward(model)
        extra.grad = torch.full((3,), value)
        optimizer.step()
        moved = not torch.equal(before[0], weights(model)), not torch.equal(before[1], extra)
        assert moved == (changed, changed)


def test_sparse_gradients_are_left_to_the_inner_optimizer() -> None:
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 3))
    optimizer = KFAC(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = weights(model)
    nn.functional.cross_entropy(model(torch.arange(5)), torch.tensor([0, 1, 2, 0, 1])).backward()
    optimizer.step()
    assert (weights(model) != before).sum() > 20


@pytest.mark.parametrize("parts", [1, 4])
def test_accumulated_batches_are_no_other_reduction(parts: int) -> None:
    """A loss over four micro-batches is divided by four; no warning says that it was a sum."""
    model = network()
    optimizer = KFAC(model)
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    for chunk in torch.arange(32).chunk(parts):
        (nn.functional.cross_entropy(model(x[chunk]), y[chunk]) / parts).backward()
    optimizer.step()  # warnings are errors


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_a_gradient_that_is_not_finite_skips_the_step(bad: float, fused: bool) -> None:
    model = network()
    inner = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)
    optimizer = KFAC(model, inner)
    run(model, optimizer, range(3))
    before = weights(model)
    averages = optimizer.curvature.averages.bank.stacks
    factors = {bucket: stack.clone() for bucket, stack in averages.items()}
    optimizer.zero_grad()
    backward(model, 3, bad)
    optimizer.step()
    assert torch.equal(weights(model), before)
    for bucket, stack in averages.items():
        assert torch.equal(stack, factors[bucket])
    assert optimizer.report()["skipped"] == 1
    assert optimizer.report()["refused"] == 2  # the statistics of both layers
    run(model, optimizer, range(4, 6))
    assert not torch.equal(weights(model), before)
    assert weights(model).isfinite().all()


@pytest.mark.parametrize("inverse", ["cholesky", "eigen", "ekfac"])
def test_rank_deficient_and_dead_layers_train_on(inverse: str) -> None:
    """One sample, the same one again, and a layer whose gradient is always zero."""
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
    model[0].bias.data.fill_(-100.0)
    optimizer = KFAC(model, lr=0.01, inverse=inverse, damping=1e-8, inverse_period=1)
    x = torch.randn(1, 20)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.tensor([1])).backward()
        optimizer.step()
    assert weights(model).isfinite().all()
    assert optimizer.report()["skipped"] == 0


@pytest.mark.parametrize(("steps_needed", "retried", "kept"), [(2, 2, 0), (9, 3, 1)])
def test_a_failing_factor_climbs_the_ladder_then_keeps_the_old_inverse(
    steps_needed: int, retried: int, kept: int
) -> None:
    model = network()
    optimizer = KFAC(model, lr=0.01, inverse_period=100, burn_in=0, factor_period=1000)
    run(model, optimizer, range(2))
    layer = optimizer.layers["0"]
    stack = optimizer.curvature.averages.bank.view(layer, "A")
    stack.copy_(torch.eye(5) * optimizer.curvature.averages.weight["0"])
    share = optimizer.curvature.damping_of(layer, 1e-2)["A"].item()
    # One eigenvalue is negative; a level of the ladder is sqrt(10) in the share of a factor.
    below = share * 10 ** (steps_needed / 2 - 0.25)
    stack[0, 0, 1] = stack[0, 1, 0] = (1 + below) * stack[0, 0, 0]
    old = optimizer.curvature.inverses.view(layer, "A").clone()
    optimizer.renewal.resume(["0"])
    run(model, optimizer, range(2, 9))
    assert optimizer.counters["retried"] == retried
    assert optimizer.counters["kept"] == kept
    assert torch.equal(optimizer.curvature.inverses.view(layer, "A"), old) == bool(kept)


def test_hopeless_factors_are_kept_from_the_first_step_on() -> None:
    """NaN factors, put there by hand: no exception, and finite steps."""
    model = network()
    optimizer = KFAC(model, lr=0.01, inverse_period=1)
    run(model, optimizer, range(2))
    for stack in optimizer.curvature.averages.bank.stacks.values():
        stack.fill_(torch.nan)
    run(model, optimizer, range(2, 9))
    assert weights(model).isfinite().all()
    assert optimizer.counters["retried"] > 0
    assert optimizer.counters["kept"] > 0


def test_the_probe_renews_what_has_changed_and_nothing_else() -> None:
    def refreshed(tolerance: float) -> int:
        torch.manual_seed(0)
        model = network()
        optimizer = KFAC(model, lr=0.0, inverse_period=1, burn_in=0, refresh_above=tolerance)
        for _ in range(6):
            optimizer.zero_grad()
            backward(model)  # the same batch and weights: factors stay as they are
            optimizer.step()
        return optimizer.counters["refreshed"]

    assert refreshed(0.01) == 2  # the two layers, once
    assert refreshed(0.0) == 12


@pytest.mark.parametrize("inverse", ["cholesky", "ekfac"])
def test_resume_is_exact(inverse: str) -> None:
    arguments = {"inverse": inverse, "refresh_above": 0.05, "inverse_period": 3, "burn_in": 4}
    torch.manual_seed(1)
    whole = network()
    optimizer = KFAC(whole, lr=0.05, **arguments)
    run(whole, optimizer, range(12))
    torch.manual_seed(1)
    first = network()
    optimizer = KFAC(first, lr=0.05, **arguments)
    run(first, optimizer, range(7))
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = network()
    second.load_state_dict(saved["model"])
    optimizer = KFAC(second, lr=0.05, **arguments)
    optimizer.load_state_dict(saved["optimizer"])
    run(second, optimizer, range(7, 12))
    assert torch.equal(weights(second), weights(whole))


def test_state_goes_to_another_number_of_ranks(run_ranks: Callable[..., list[Any]]) -> None:
    """Saved by four ranks at fraction 1/4, loaded by one, whole."""

    def save() -> bytes:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(1)
        model, file = network(), io.BytesIO()
        optimizer = KFAC(model, lr=0.05, fraction=1 / World.start().size, world=World.start())
        run(model, optimizer, range(4))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        return file.getvalue()

    four = torch.load(io.BytesIO(run_ranks(4, save)[2]), weights_only=True)
    model = network()
    model.load_state_dict(four["model"])
    optimizer = KFAC(model, lr=0.05)
    optimizer.load_state_dict(four["optimizer"])
    torch.manual_seed(1)
    alone = network()
    expected = KFAC(alone, lr=0.05)
    run(alone, expected, range(4))
    # Every rank had the same samples: their sums are those of four batches, the averages of one.
    for layer in optimizer.layers.values():
        for name in "AG":
            torch.testing.assert_close(
                optimizer.curvature.averages.mean(layer, name),
                expected.curvature.averages.mean(expected.layers[layer.name], name),
            )
    run(model, optimizer, range(4, 8))
    run(alone, expected, range(4, 8))
    torch.testing.assert_close(weights(model), weights(alone))


def test_a_foreign_state_is_refused() -> None:
    model = network()
    optimizer = KFAC(model)
    with pytest.raises(RunError, match="not of K-FAC"):
        optimizer.load_state_dict(torch.optim.SGD(model.parameters(), 0.1).state_dict())
    with pytest.raises(RunError, match="saved with inverse='eigen'"):
        optimizer.load_state_dict(KFAC(network(), inverse="eigen").state_dict())
    with pytest.raises(RunError, match="another model: it preconditions 4"):
        optimizer.load_state_dict(
            KFAC(nn.Sequential(*network(), nn.ReLU(), nn.Linear(3, 3))).state_dict()
        )
    other = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
    with pytest.raises(RunError, match=r"state of 0 has shape \(1, 7, 7\)|shape"):
        optimizer.load_state_dict(KFAC(other).state_dict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"approximation": "both"}, "approximation: expected one of auto, expand, reduce"),
        ({"fisher": "true"}, "fisher: expected one of empirical, sampled"),
        ({"inverse": "lu"}, "inverse: expected one of cholesky, eigen, ekfac"),
        ({"loss_reduction": "none"}, "loss_reduction: expected one of mean, sum, positions"),
        ({"fraction": 0.5}, "with 1 ranks expected one of 1"),
        ({"compression": 2.0}, "compression: expected null or a number in"),
    ],
)
def test_other_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KFAC(network(), **arguments)


def test_schedules_are_followed() -> None:
    model = network()
    seen: list[int] = []

    def damping(step: int) -> float:
        seen.append(step)
        return 0.1 / (step + 1)

    optimizer = KFAC(
        model, lr=0.1, damping=damping, kl_clip=lambda step: 1e-3, inverse_period=lambda step: 2
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for step in range(4):
        run(model, optimizer, range(step, step + 1))
        scheduler.step()
    assert seen == [0, 1, 2, 3]
    assert optimizer.param_groups[0]["lr"] == optimizer.inner.param_groups[0]["lr"] == 0.1 / 16
    assert optimizer.counters["refreshed"] == 4  # two layers at steps 0 and 2


def test_step_asks_the_host_for_nothing_but_whether_to_skip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = network()
    optimizer = KFAC(model, torch.optim.SGD(model.parameters(), 0.1, fused=True))
    run(model, optimizer, range(3))
    optimizer.zero_grad()
    backward(model, 3)

    def refuse(*_: Any) -> Any:
        raise AssertionError("the step waits for the device")

    optimizer.renewal.resume([])
    monkeypatch.setattr(factors, "is_free_to_ask", lambda flag: False)
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "cpu"):
        monkeypatch.setattr(Tensor, name, refuse)
    optimizer.step()


def test_averages_on_a_device_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for is_free in (True, False):
        monkeypatch.setattr(factors, "is_free_to_ask", lambda flag, is_free=is_free: is_free)
        torch.manual_seed(0)
        model = network()
        optimizer = KFAC(model, lr=0.1)
        run(model, optimizer, range(2))
        model(torch.full((4, 4), torch.nan)).sum().backward()
        optimizer.step()
        averages = optimizer.curvature.averages
        found.append([*averages.bank.stacks.values(), *averages.weight.values()])
        assert all(int(count) == 1 for count in averages.refused.values())
    for host, device in zip(*found, strict=True):
        torch.testing.assert_close(host, device, rtol=1e-12, atol=0)


def test_still_preconditions_after_300_steps() -> None:
    """The reference implementation's directions are those of the gradient (0.997 and more)."""
    torch.set_default_dtype(torch.float32)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = KFAC(model, lr=0.03)
    x = torch.randn(256, 16) * torch.linspace(0.1, 3, 16)
    y = (x[:, :4] + 0.3 * torch.randn(256, 4)).argmax(1)
    for step in range(301):
        rows = torch.randint(256, (64,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        raw = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    for p, gradient in zip(model.parameters(), raw, strict=True):
        if p.dim() == 2:
            assert torch.cosine_similarity(p.grad.flatten(), gradient.flatten(), 0) < 0.99
