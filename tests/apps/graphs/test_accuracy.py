"""Accuracy on published graphs and splits, beside published numbers; `pytest -m soak -s` prints it.

All models have the same training: AdamW at a rate of 0.01, at most 300 steps of all train nodes at
once, hidden width 64, the first step with the best validation counts. On the public splits GCN and
SGC have the published one: 16 hidden units and a penalty on the first layer alone (Kipf and Welling
2017, section 5.2); a penalty chosen on validation (Wu et al. 2019, section 5.1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from apps.graphs.data import GraphData
from apps.graphs.model import SIGN, GraphAugmentedMLP, Hedge, HopAttention, MessagePassing
from apps.graphs.task import NodeTask
from scadl_core.comm import World

STEPS, EVERY = 300, 2
PENALTIES = (0.5, 1.0, 2.0, 4.0)  # of the squared weights of SGC, which is convex
MODELS: dict[str, Any] = {  # how it is made, hops (None: the full graph), weight decay
    "mlp": (lambda f, c: GraphAugmentedMLP(f, c, 0, 64, 2, 0.5), 0, 0.01),
    "sgc": (lambda f, c: GraphAugmentedMLP(f, c, 2, depth=1, dropout=0, use="last"), 2, 1.0),
    "ga_mlp": (lambda f, c: GraphAugmentedMLP(f, c, 4, 64, 2, 0.5), 4, 0.5),
    "gamlp": (lambda f, c: HopAttention(f, c, 4, 64, 2, 0.5), 4, 0.5),
    "gcn": (lambda f, c: MessagePassing(f, c, "gcn", 64, 2, 0.5), None, 0.5),
    "gcn (published)": (lambda f, c: MessagePassing(f, c, "gcn", 16, 2, 0.5), None, 5e-4),
    "sage": (lambda f, c: MessagePassing(f, c, "sage", 64, 2, 0.5), None, 0.01),
    "sign": (lambda f, c: SIGN(f, c, 4, 64, 2, 0.5), 4, 0.01),
    "hedge (default)": (lambda f, c: Hedge(f, c, 4, 64, 2, 0.5), 4, 0.01),
}


def fit(
    path: Path, name: str, seed: int, number: int = 0, penalty: float | None = None
) -> tuple[float, float]:
    """The best score of validation (accuracy, ROC AUC of two classes), and the test's then."""
    make, num_hops, decay = MODELS[name]
    decay = decay if penalty is None else penalty
    full = num_hops is None
    data = GraphData(
        path,
        split={"number": number},
        hops=num_hops or 0,
        batches="full" if full else "hops",
        norm="none" if name == "sage" else "sym",
    )
    torch.manual_seed(seed)
    network = make(*data.dimensions().values())
    task = NodeTask(
        "auto", "none", {}, None, network=network, facts=data.facts(), world=World(), seed=seed
    )
    samples = {it: data.samples(it) for it in ("train", "val", "test")}
    batches = {it: of.batch(list(range(len(of))), None) for it, of in samples.items()}
    optimizer = _optimizer(network, name, decay)
    best = (-1.0, 0.0)
    for step in range(STEPS):
        task.train()
        sums_H2 = task._sums(task.heads(batches["train"]), batches["train"]["label"])
        optimizer.zero_grad()
        (sums_H2[:, 0] / sums_H2[:, 1]).sum().backward()
        optimizer.step()
        if step % EVERY == EVERY - 1:
            score = _validated(task, batches["val"])
            if (
                score > best[0]
            ):  # the first of equals: to choose among them by the test would flatter
                best = score, _tested(task, batches["test"])
    return best


def _optimizer(network: Any, name: str, decay: float) -> torch.optim.Optimizer:
    parameters = list(network.parameters())
    if name == "sgc":
        return torch.optim.Adam(parameters, 0.01, weight_decay=decay)
    if name != "gcn (published)":
        return torch.optim.AdamW(parameters, 0.01, weight_decay=decay)
    first = list(network.layers.convs[0].parameters())
    for weight in (it for it in parameters if it.dim() > 1):
        torch.nn.init.xavier_uniform_(weight)
    rest = [it for it in parameters if all(it is not other for other in first)]
    return torch.optim.Adam([{"params": first, "weight_decay": decay}, {"params": rest}], 0.01)


@torch.inference_mode()
def _validated(task: NodeTask, batch: Any) -> float:
    task.eval()
    task.on_validation_epoch_start()
    task.validation_step(batch, 0)
    return task.scores()[task.score]


@torch.inference_mode()
def _tested(task: NodeTask, batch: Any) -> float:
    task.on_test_epoch_start()
    task.test_step(batch, 0)
    return task.scores()[task.score]


def table(path: Path, models: Any, seeds: Any, numbers: Any = (0,)) -> dict[str, Any]:
    """Mean and standard error of each model over seeds, or splits."""
    found = {}
    for name in models:
        penalty = None
        if name == "sgc":
            penalty = max(PENALTIES, key=lambda it: fit(path, name, 0, numbers[0], it)[0])
        of = [fit(path, name, seed, number, penalty)[1] for seed in seeds for number in numbers]
        found[name] = np.mean(of), np.std(of, ddof=1) / np.sqrt(len(of)) if len(of) > 1 else 0.0
        print(f"{path.name:24} {name:15} {found[name][0]:.3f} +- {found[name][1]:.3f}", flush=True)
    return found


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("cora", {"gcn (published)": 0.815, "sgc": 0.805}),
        ("citeseer", {"gcn (published)": 0.71, "sgc": 0.72}),
    ],
)
def test_public_splits(shared_data: Path, name: str, least: dict[str, float]) -> None:
    path = shared_data / "graphs" / f"planetoid_{name}"
    models = ("gcn (published)", "gcn", "sgc", "ga_mlp", "gamlp", "sign", "hedge (default)")
    found = table(path, models, range(10))
    for model, accuracy in least.items():
        assert found[model][0] >= accuracy - 1e-9, model


@pytest.mark.soak
@pytest.mark.parametrize("name", ["texas", "actor", "minesweeper", "tolokers"])
def test_the_default_is_as_good_as_others(shared_data: Path, name: str) -> None:
    """At least as good as the better of perceptron and GCN, less one standard error."""
    path = shared_data / "graphs" / "npz_heterophilous" / f"{name}.npz"
    found = table(path, ("mlp", "gcn", "sage", "sign", "hedge (default)"), (0,), range(10))
    better = max(found["mlp"], found["gcn"])
    assert found["hedge (default)"][0] >= better[0] - better[1]
