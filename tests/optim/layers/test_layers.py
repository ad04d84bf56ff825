"""Coverage of models, weight sharing, and the failures of the reference implementation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from scadl_core.optim import KFAC


class Twice(nn.Module):
    """One layer used twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.inner(x)))


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
def test_a_layer_used_twice_has_twice_the_positions(
    approximation: str, make_plain: Callable[..., KFAC]
) -> None:
    model, x, weights = Twice(), torch.randn(6, 4), torch.randn(6, 4) / 6
    first = model.inner(x)
    first.retain_grad()
    middle = torch.tanh(first)
    last = model.inner(middle)
    last.retain_grad()
    (last * weights).sum().backward()
    assert first.grad is not None and last.grad is not None
    a = torch.stack([torch.cat([v, torch.ones(6, 1)], 1) for v in (x, middle.detach())], 1)
    g = torch.stack([first.grad, last.grad], 1)
    if approximation == "expand":
        expected = {
            "A": torch.einsum("nti,ntj->ij", a, a) / 6,
            "G": torch.einsum("nti,ntj->ij", g, g) * 6 / 2,
        }
    else:
        expected = {"A": a.mean(1).T @ a.mean(1) / 6, "G": g.sum(1).T @ g.sum(1) * 6}
    model.zero_grad()
    optimizer = make_plain(model, approximation=approximation)
    (model(x) * weights).sum().backward()
    optimizer.step()
    (layer,) = optimizer.layers.values()
    for name, value in expected.items():
        found = optimizer.curvature.averages.mean(layer, name)[0]
        torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
def test_traces_are_those_of_the_true_fisher_matrix(approximation: str) -> None:
    """tr(A) tr(G) over the mean squared gradient of single samples is near one without weight
    sharing, and with it the same whatever the batch; the reference implementation is off by the
    square of the batch, and more.
    """
    small, large = (trace_ratios(approximation, batch) for batch in (16, 256))
    for name in small:
        assert 0.5 < small[name] / large[name] < 2, name
        if name in ("5", "7"):
            assert 0.2 < small[name] < 5, name
            assert 0.2 < large[name] < 5, name


def trace_ratios(approximation: str, batch: int) -> dict[str, float]:
    """By layer of a small network."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 5),
    )  # fmt: skip
    x, y = torch.randn(batch, 1, 4, 4), torch.randint(5, (batch,))
    ratios = {}
    optimizer = KFAC(
        model, torch.optim.SGD(model.parameters(), lr=0.0), approximation=approximation
    )
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    for name, layer in optimizer.layers.items():
        squares = torch.zeros(())
        for n in range(batch):
            loss = nn.functional.cross_entropy(model(x[n : n + 1]), y[n : n + 1])
            for gradient in torch.autograd.grad(loss, layer.parameters):
                squares += gradient.square().sum() / batch
        traces = [optimizer.curvature.averages.mean(layer, s)[0].trace() for s in "AG"]
        ratios[name] = float(traces[0] * traces[1] / squares)
    optimizer.close()
    return ratios


def test_a_wrong_reduction_is_noticed() -> None:
    def step(reduction: str, told: str, positions: bool = False) -> None:
        model = nn.Conv1d(3, 4, 1) if positions else nn.Linear(3, 4)
        optimizer = KFAC(model, loss_reduction=told)
        x = torch.randn(*((16, 3, 20) if positions else (16, 3)))
        y = torch.randint(4, (16, 20) if positions else (16,))
        nn.functional.cross_entropy(model(x), y, reduction=reduction).backward()
        optimizer.step()

    step("mean", "mean")
    step("sum", "sum")
    step("mean", "mean", positions=True)
    step("mean", "positions", positions=True)
    with pytest.warns(UserWarning, match=r"curvature is 2.6e\+02 times"):
        step("sum", "mean")
    with pytest.warns(UserWarning, match=r"loss_reduction='sum' curvature is 0.0039 times"):
        step("mean", "sum")


@pytest.mark.parametrize(("reduction", "told"), [("mean", "mean"), ("sum", "sum"), ("sum", "mean")])
def test_reduction_of_any_loss_is_compared_with_single_samples(reduction: str, told: str) -> None:
    """At a sum told to be a mean 8 samples show 64."""
    model, x, y = nn.Linear(3, 2), torch.randn(20, 3), torch.randn(20, 2)
    optimizer = KFAC(model, loss_reduction=told)

    def loss(rows: slice) -> Tensor:
        return nn.functional.mse_loss(model(x[rows]), y[rows], reduction=reduction)

    if reduction == told == "mean":
        assert optimizer.check_reduction(loss, 20) == pytest.approx(1, rel=0.5)
    elif reduction != told:
        with pytest.warns(UserWarning, match="8 single samples"):
            assert optimizer.check_reduction(loss, 20) == pytest.approx(64, rel=0.5)


FAILURES: dict[str, Callable[[], nn.Module]] = {
    "grouped": lambda: nn.Conv2d(4, 4, 3, groups=2),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "same": lambda: nn.Conv2d(4, 4, 3, padding="same"),
    "dilated": lambda: nn.Conv2d(4, 4, 2, dilation=2),
    "circular": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    "in place": lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True)),
    "transposed": lambda: nn.ConvTranspose2d(4, 4, 2, stride=2),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)),
    "encoder": lambda: nn.Sequential(
        nn.Flatten(2), nn.TransformerEncoderLayer(25, 5, 16, batch_first=True)
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_the_reference_implementation_cannot_do(case: str) -> None:
    """Trains without clipping too, and every parameter of these is preconditioned."""
    model = FAILURES[case]()
    optimizer = KFAC(model, lr=0.01, kl_clip=None, damping=3.0)
    assert optimizer.explain().covered_share == 1.0
    x = torch.randn(6, 4, 5, 5)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = (model(x) - 0.5).square().flatten(1).sum(1).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_explain_says_what_is_not_covered() -> None:
    model = nn.ModuleDict(
        {
            "body": nn.Linear(4, 4),
            "lstm": nn.LSTM(4, 2),
            "skipped": nn.Linear(4, 2),
            "frozen": nn.Linear(2, 2),
            "table": nn.Embedding(4, 4),
            "wide": nn.Linear(70, 3, bias=False),
        }
    )
    model["frozen"].requires_grad_(False)
    model["head"] = nn.Linear(4, 4, bias=False)
    model["head"].weight = model["table"].weight
    report = KFAC(model, skip=["skip*"], max_size=64).explain()
    assert {line.layer: line.factors for line in report.lines} == {
        "body": "A 5, G 4",
        "wide": "A diag 70, G 3",
    }
    assert report.lines[0].factor_bytes == 2 * 8 * (25 + 16)
    assert report.lines[0].milliseconds > 0
    assert report.uncovered["skipped.weight"] == "skipped as asked"
    assert report.uncovered["frozen.bias"] == "frozen"
    assert report.uncovered["table.weight"].startswith("shared with another kind of layer")
    assert report.uncovered["lstm.weight_ih_l0"] == "its module has no plain trained weight"
    covered, trained = (
        20 + 210,
        20 + 210 + 10 + 16 + sum(p.numel() for p in model["lstm"].parameters()),
    )
    assert report.covered_share == pytest.approx(covered / trained)
    text = str(report)
    assert "not: skipped.weight (skipped as asked)" in text
    assert text.splitlines()[0].split() == ["layer", "kind", "factors", "owner", "KiB", "ms"]


def test_message_passing_is_a_linear_layer_of_nodes(make_plain: Callable[..., KFAC]) -> None:
    from torch_geometric.nn import SAGEConv

    conv = SAGEConv(3, 4)
    x, edges = torch.randn(6, 3), torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
    weights = torch.randn(6, 4) / 6
    optimizer = make_plain(conv)
    assert set(optimizer.layers) == {"lin_l", "lin_r"}
    (conv(x, edges) * weights).sum().backward()
    optimizer.step()
    means = torch.zeros(6, 3).index_add(0, edges[1], x[edges[0]])
    means = means / torch.bincount(edges[1], minlength=6)[:, None]
    rows = {"lin_l": torch.cat([means, torch.ones(6, 1)], 1), "lin_r": x}
    for name, a in rows.items():
        layer = optimizer.layers[name]
        torch.testing.assert_close(optimizer.curvature.averages.mean(layer, "A")[0], a.T @ a / 6)
        g = optimizer.curvature.averages.mean(layer, "G")[0]
        torch.testing.assert_close(g, 6 * weights.T @ weights)
