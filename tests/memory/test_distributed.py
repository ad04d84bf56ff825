"""Two ranks of DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scadl_core.comm import World
from scadl_core.memory import CompressedActivations


def test_two_ranks(run_ranks: Callable[..., list[Any]]) -> None:
    """To the bit where nothing is lost; else within the fraction, and equal on both ranks. The
    gradients that tell the bounds are each rank's own.
    """

    def work() -> dict[str, Any]:
        torch.set_num_threads(1)
        world = World.start()
        found: dict[str, Any] = {}
        for name, fraction in (("none", None), ("exact", 0.0), ("adaptive", 0.01)):
            torch.manual_seed(0)
            net = nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3)
            )
            model = DistributedDataParallel(net, gradient_as_bucket_view=True)
            image_BCHW = torch.randn(
                4, 3, 16, 16, generator=torch.Generator().manual_seed(world.rank)
            )
            compressed = CompressedActivations(model, fraction or 0.0, smallest=64)
            for _ in range(3):
                model.zero_grad()
                if fraction is None:
                    loss = model(image_BCHW).square().sum()
                else:
                    with compressed:
                        loss = model(image_BCHW).square().sum()
                loss.backward()
            found[name] = torch.cat([p.grad.flatten() for p in net.parameters()]).tolist()
            found[f"{name} reaches"] = [s.reach for s in compressed.sites.values() if s.reach]
            found[f"{name} kept"] = compressed.ledger.peak
        return found

    first, second = run_ranks(2, work)
    for found in (first, second):
        assert found["exact"] == found["none"] == first["none"]
        ours, exact = torch.tensor(found["adaptive"]), torch.tensor(found["none"])
        assert 0 < float((ours - exact).norm() / exact.norm()) < 0.012
        assert len(found["adaptive reaches"]) == 3
        assert found["adaptive kept"] < found["exact kept"]
    assert first["adaptive"] == second["adaptive"]
    assert first["adaptive reaches"] != second["adaptive reaches"]
