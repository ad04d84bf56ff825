"""GA-MLP on Cora and CiteSeer: 10 layers of 100 units, as published with pdADMM-G."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from scadl_core.admm import Data, Problem, fit
from scadl_core.admm.growth import grown
from scadl_core.admm.penalties import LossTriggered
from scadl_core.admm.problem import cross_entropy
from scadl_core.admm.rules import BlockADMM, PdADMM
from scadl_core.bench.networks import accuracy
from scadl_core.bench.planetoid import Graph, read_graph
from scadl_core.bench.rivals import backpropagation
from scadl_core.bench.rows import Row

LAYERS, WIDTH, SEEDS = 10, 100, 10

Train = Callable[[Graph, int], nn.Module]


def bench_graph(folder: Path, name: str, quick: bool) -> list[Row]:
    """The accuracies of all methods on one graph, over seeds.

    Args:
        folder: Of Planetoid's files.
        name: "cora" or "citeseer".
        quick: One seed instead of ten.
    """
    graph, rows = read_graph(folder, name), list[Row]()
    for method, train in _methods().items():
        scores, began = [], time.process_time()
        seeds = 1 if quick else SEEDS
        for seed in range(seeds):
            network = train(graph, seed)
            with torch.no_grad():
                output = network(graph.features[graph.test])
            scores.append(accuracy(output, graph.labels[graph.test]))
        seconds = (time.process_time() - began) / seeds
        rows += [
            Row(name, method, "test accuracy", float(np.mean(scores)), "1"),
            Row(name, method, "std", float(np.std(scores, ddof=seeds > 1)), "1"),
            Row(name, method, "training", seconds, "CPU-s"),
        ]
    return rows


def _data(graph: Graph) -> Data:
    return Data.of(graph.features[graph.train], graph.labels[graph.train])


def start(graph: Graph, seed: int, layers: int = LAYERS) -> nn.Sequential:
    """Two layers by PyTorch's own initialisation, grown by identity layers."""
    torch.manual_seed(seed)
    inputs, classes = graph.features.shape[1], int(graph.labels.max()) + 1
    shallow = nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))
    return grown(shallow, layers)


def closed_form(graph: Graph, seed: int, iterations: int = 200) -> nn.Module:
    """As published: 2, then 5, then 10 layers, each 200 iterations; rho = nu, raised by loss."""
    network = start(graph, seed, layers=2)
    torch.manual_seed(seed)
    for parameter in network.parameters():
        nn.init.normal_(parameter, 0, 0.1)
    for layers, rho, decay in ((2, 1e-5, 10.0), (5, 1e-4, 0.01), (LAYERS, 1e-4, 0.01)):
        network = grown(network, layers)
        rule = PdADMM(penalty=rho, nu=None, weight_decay=decay, first_step=20.0)
        fit(Problem(network, cross_entropy), _data(graph), rule=rule, iterations=iterations,
            penalty=LossTriggered())  # fmt: skip
    return network


def block_local(blocks: int, iterations: int = 50) -> Train:
    """Block-local ADMM from the identity start."""

    def train(graph: Graph, seed: int) -> nn.Module:
        network = start(graph, seed)
        problem = Problem(network, cross_entropy, blocks=blocks)
        rule = BlockADMM(penalty=0.1)
        fit(problem, _data(graph), rule=rule, iterations=iterations, every=iterations)
        return network

    return train


def adam(rate: float, iterations: int, identity: bool) -> Train:
    """Backpropagation with Adam."""

    def train(graph: Graph, seed: int) -> nn.Module:
        network = start(graph, seed)
        if not identity:
            for module in network:
                if isinstance(module, nn.Linear):
                    module.reset_parameters()

        def make(parameters: Any) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, rate)

        backpropagation([network], cross_entropy, _data(graph), iterations, make)
        return network

    return train


def logistic(graph: Graph, seed: int) -> nn.Module:
    """Multinomial logistic regression on the same features, by full-batch Adam."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(graph.features.shape[1], int(graph.labels.max()) + 1))

    def make(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, 1e-2, weight_decay=5e-4)

    backpropagation([network], cross_entropy, _data(graph), 100, make)
    return network


def _methods() -> dict[str, Train]:
    return {
        "pdadmm, as published, 600 iterations": closed_form,
        "block_admm, 2 blocks, 50 iterations": block_local(2),
        "block_admm, 5 blocks, 50 iterations": block_local(5),
        "Adam 1e-4, identity start, 200 epochs": adam(1e-4, 200, identity=True),
        "Adam 1e-3, default start, 200 epochs": adam(1e-3, 200, identity=False),
        "logistic regression, same features": logistic,
    }
