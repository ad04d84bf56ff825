"""Networks of sets: neither the order of constituents nor what fills up a batch matters."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
import torch

from apps.hep.model import DeepSets, ParticleNet, ParticleTransformer
from apps.hep.particlenet import nearest
from apps.hep.transformer import in_common, pair_of
from scadl_core.errors import ConfigError

SIZES = {"num_particles": 5, "num_flat": 3, "num_points": 2, "num_vectors": 4, "num_classes": 4}
NETWORKS = pytest.mark.parametrize("network", [DeepSets, ParticleNet, ParticleTransformer])


def inputs(rows: int = 12, length: int = 14) -> list[torch.Tensor]:
    """In float64; the first row has no constituent, the second one."""
    generator = torch.Generator().manual_seed(0)
    number_B = torch.randint(0, length, (rows,), generator=generator)
    number_B[:2] = torch.tensor([0, 1])
    mask_BP = torch.arange(length) < number_B[:, None]

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    momentum = random(rows, length, 3)
    vectors = torch.cat([momentum, momentum.norm(dim=2, keepdim=True) * 1.01], 2)
    lists = [random(rows, length, 5), random(rows, length, 2), vectors]
    features, points, vectors = (it * mask_BP[..., None] for it in lists)
    return [features, mask_BP, points, vectors, random(rows, 3)]


def make(network: type) -> torch.nn.Module:
    torch.manual_seed(0)
    return network(**SIZES).double().eval()


@NETWORKS
def test_order_and_padding_have_no_effect(network: type) -> None:
    net, given = make(network), inputs()
    order = torch.stack([torch.randperm(14) for _ in range(12)])

    def turned(it: torch.Tensor) -> torch.Tensor:
        index = order[..., None].expand(-1, -1, it.shape[2]) if it.ndim == 3 else order
        return it.gather(1, index)

    def longer(it: torch.Tensor) -> torch.Tensor:
        return torch.cat([it, torch.zeros(12, 9, *it.shape[2:], dtype=it.dtype)], 1)

    with torch.no_grad():
        expected = net(*given)
        assert expected.isfinite().all()
        assert expected.std(0).min() > 1e-3
        torch.testing.assert_close(net(*map(turned, given[:4]), given[4]), expected)
        torch.testing.assert_close(net(*map(longer, given[:4]), given[4]), expected)
        one_by_one = torch.cat([net(*(it[[n]] for it in given)) for n in range(12)])
        torch.testing.assert_close(one_by_one, expected)


@NETWORKS
def test_gradients_are_finite_and_reach_every_weight(network: type) -> None:
    net = make(network).train()
    torch.nn.functional.cross_entropy(net(*inputs()), torch.arange(12) % 4).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_deep_sets_are_a_chain_of_blocks_of_one_tensor() -> None:
    net, given = make(DeepSets), inputs()
    state = net.join(given[0], given[1], given[4])
    first, rest = net.blocks[:2], net.blocks[2:]
    torch.testing.assert_close(rest(first(state)), net(*given))


def test_neighbours_are_those_of_all_distances() -> None:
    _, mask_BP, points, *_ = inputs()
    index, there = nearest(points, mask_BP, 3)
    for row in range(12):
        known = int(mask_BP[row].sum())
        away = torch.cdist(points[row, :known], points[row, :known])
        for one in range(known):
            expected = set(away[one].argsort()[1:4].tolist()) if known > 1 else set()
            assert set(index[row, one][there[row, one]].tolist()) == expected


def test_pairs_of_momenta() -> None:
    """Two photons back to back in the transverse plane: their mass is the sum of energies."""
    vectors = torch.tensor([[[3.0, 0, 0, 3], [-5.0, 0, 0, 5]]], dtype=torch.float64)
    centre, width = torch.tensor([-1.5, 0, -2, 2.0]), torch.tensor([1.5, 2, 1.5, 3.0])
    pair = int(pair_of(torch.ones(1, 2))[1, 0])
    found = (in_common(vectors)[0, pair] * width + centre).exp()
    expected = [torch.pi, 3 * torch.pi, 3 / 8, 4 * 3 * 5]
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_every_pair_has_its_number(count: int) -> None:
    expected = torch.zeros(count, count, dtype=torch.int64)
    pairs = combinations_with_replacement(range(count), 2)
    for number, (first, second) in enumerate(pairs):
        expected[first, second] = expected[second, first] = number
    torch.testing.assert_close(pair_of(torch.ones(1, count)), expected)


@pytest.mark.parametrize(
    ("network", "sizes", "said"),
    [
        (ParticleNet, {"num_points": 0}, "data.constituents.points"),
        (ParticleTransformer, {"num_vectors": 0}, "data.constituents.vectors"),
        (ParticleTransformer, {"heads": 5}, "multiple of model.heads"),
    ],
)
def test_what_a_network_needs(network: type, sizes: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        network(**{**SIZES, **sizes})


def test_any_cut_of_deep_sets_is_the_network() -> None:
    from scadl_core.workflow.cutting import cut_network

    network, given = make(DeepSets), tuple(inputs())
    for blocks in (1, 2, 3, 4):
        hidden = given
        for block in cut_network(network, blocks):
            hidden = block(hidden)
        torch.testing.assert_close(hidden, network(*given), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("network", "sizes", "key"),
    [
        (DeepSets, {"width": 0}, "model.width"),
        (DeepSets, {"depth": 10**9}, "model.depth"),
        (DeepSets, {"head": -1}, "model.head"),
        (ParticleNet, {"neighbours": 0}, "model.neighbours"),
        (ParticleNet, {"widths": [32, 0]}, r"model.widths\[1\]"),
        (ParticleNet, {"widths": []}, "model.widths"),
        (ParticleTransformer, {"heads": 0}, "model.heads"),
        (ParticleTransformer, {"layers": -1}, "model.layers"),
        (ParticleTransformer, {"pair_width": 0}, "model.pair_width"),
        (ParticleTransformer, {"width": 6}, "model.width=6 must be a multiple"),
    ],
)
def test_sizes_that_no_network_has(network: type, sizes: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        network(**SIZES, **sizes)
