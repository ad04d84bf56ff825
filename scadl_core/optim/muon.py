"""Muon for whole models: the library's takes matrices, the rest of a model needs AdamW."""

from __future__ import annotations

from typing import Any

import pytorch_optimizer
from torch import nn


class Muon(pytorch_optimizer.Muon):
    """Orthogonalised momentum (Jordan 2024) for weights of hidden layers, AdamW for embeddings, the
    last layer, biases and scales.

    Args:
        model: The last of its modules with a matrix is taken for the output layer.
        world: Not needed; as other optimizers of models have it.
        lr: Of Muon.
        momentum: Of Muon.
        weight_decay: Of both.
        adamw_lr: Of AdamW.
    """

    takes_model = True

    def __init__(
        self,
        model: nn.Module,
        world: Any = None,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        adamw_lr: float = 3e-3,
    ) -> None:
        lookups = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
        trained = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.dim() > 1 and p not in lookups][:-1]
        chosen = set(matrices)
        super().__init__(
            [
                {"params": matrices, "use_muon": True},
                {"params": [p for p in trained if p not in chosen], "use_muon": False},
            ],
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            adamw_lr=adamw_lr,
            adamw_wd=weight_decay,
        )
