"""Compressed activations against training without hooks. Each trap of saved-tensor hooks has a
test that fails without its remedy.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from scadl_core.compress import Absolute, PointwiseRelative, Relative
from scadl_core.errors import ActivationError, CodecError
from scadl_core.memory import CompressedActivations, SavedBytes
from scadl_core.memory.boxes import Kept

SMALL = {"smallest": 64}


def network(in_place: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(in_place)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(in_place)),
        *(nn.MaxPool2d(2), nn.Dropout(0.1), nn.Conv2d(8, 4, 1), nn.GELU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * 4 * 4, 10)),
    )


IMAGE_BCHW = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
LABEL_B = torch.tensor([1, 0, 7, 3])


def gradients(module: nn.Module, loss: Tensor) -> list[Tensor]:
    module.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def step(module: nn.Module, compressed: CompressedActivations | None = None) -> list[Tensor]:
    torch.manual_seed(3)
    if compressed is None:
        return gradients(module, functional.cross_entropy(module(IMAGE_BCHW), LABEL_B))
    with compressed:
        loss = functional.cross_entropy(module(IMAGE_BCHW), LABEL_B)
    return gradients(module, loss)


def distance(ours: list[Tensor], exact: list[Tensor]) -> float:
    """Of whole gradients, relative."""
    ours_N, exact_N = (
        torch.cat([t.flatten() for t in ours]),
        torch.cat([t.flatten() for t in exact]),
    )
    return float((ours_N - exact_N).norm() / exact_N.norm())


def equal(ours: list[Tensor], exact: list[Tensor]) -> bool:
    return len(ours) == len(exact) and all(map(torch.equal, ours, exact))


@pytest.mark.parametrize("in_place", [False, True])
def test_exact_means_to_the_bit(in_place: bool) -> None:
    exact = step(network(in_place))
    compressed = CompressedActivations(network(in_place), 0, **SMALL)
    assert equal(step(compressed.module, compressed), exact)
    assert compressed.ledger.ratio > 1.3  # bits, indices and shapes cost nothing


def test_not_a_number_and_infinity_pass() -> None:
    image_BCHW = IMAGE_BCHW.clone()
    image_BCHW[0, 0, 0, 0], image_BCHW[1, 0, 0, 0] = float("nan"), float("inf")
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    exact = gradients(net, net(image_BCHW).sum())
    compressed = CompressedActivations(net, 0.01, **SMALL)
    for _ in range(2):  # without statistics and with
        with compressed:
            loss = net(image_BCHW).sum()
        ours = gradients(net, loss)
    for one, other in zip(ours, exact, strict=True):
        assert torch.equal(one.isnan(), other.isnan())


def test_errors_stay_at_the_fraction_and_bytes_fall() -> None:
    net = network()
    exact, compressed = step(net), CompressedActivations(net, 0.01, **SMALL)
    for _ in range(3):
        ours = step(net, compressed)
    assert 0 < distance(ours, exact) < 0.012  # what goes on to the layers below comes on top
    assert compressed.ledger.ratio > 4


def test_the_uncompressed_bytes_are_those_of_the_other_counter() -> None:
    net = network()
    with SavedBytes(net) as expected:
        functional.cross_entropy(net(IMAGE_BCHW), LABEL_B)
    compressed = CompressedActivations(net, **SMALL)
    with compressed:
        loss = functional.cross_entropy(net(IMAGE_BCHW), LABEL_B)
    assert compressed.ledger.live_raw == compressed.ledger.peak_raw == expected.bytes
    assert compressed.ledger.live == stored_bytes()
    loss.backward()
    assert compressed.ledger.live == compressed.ledger.live_raw == 0


def stored_bytes() -> int:
    """What all boxes alive hold, each payload and each storage once: counted from the objects."""
    from scadl_core.memory.boxes import Box

    gc.collect()
    payloads = {id(b.payload): b.payload for b in gc.get_objects() if type(b) is Box and b.entry}
    storages = {
        p.tensor.untyped_storage().data_ptr(): p.tensor.untyped_storage().nbytes()
        for p in payloads.values() if isinstance(p, Kept)
    }  # fmt: skip
    return sum(storages.values()) + sum(
        p.nbytes for p in payloads.values() if not isinstance(p, Kept)
    )


# Parameters, buffers, their views and casts


def test_parameters_buffers_and_views_of_them_are_left_alone() -> None:
    linear = nn.Linear(64, 64)
    compressed = CompressedActivations(linear, bound=Absolute(10.0), **SMALL)
    input_BI = torch.randn(32, 64, requires_grad=True)
    with compressed:  # saved is the transposed weight, a view
        output_BO = linear(input_BI)
    output_BO.sum().backward()
    assert input_BI.grad is not None
    torch.testing.assert_close(input_BI.grad, linear.weight.sum(0).expand(32, 64))

    norm = nn.BatchNorm1d(4096).eval()
    norm.running_var.fill_(0.25)
    compressed = CompressedActivations(norm, bound=Absolute(10.0), **SMALL)
    leaf_BI = torch.randn(2, 4096, requires_grad=True)
    with compressed:
        output_BI = norm(leaf_BI)
    output_BI.sum().backward()
    assert leaf_BI.grad is not None
    torch.testing.assert_close(leaf_BI.grad, torch.full((2, 4096), 1.99996), rtol=1e-5, atol=0)


def test_casts_of_parameters_are_left_alone() -> None:
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 14 * 14, 8))

    def run(compressed: CompressedActivations | None) -> Tensor:
        leaf_BCHW = IMAGE_BCHW.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            if compressed is None:
                loss = net(leaf_BCHW).float().square().sum()
            else:
                with compressed:
                    loss = net(leaf_BCHW).float().square().sum()
        loss.backward()
        assert leaf_BCHW.grad is not None
        return leaf_BCHW.grad

    # A bound of 10 would wipe out the weights; what goes back into the image needs weights alone,
    # and the output, which pow saves.
    compressed = CompressedActivations(net, bound=Absolute(10.0), smallest=64)
    compressed.smallest = 64
    exact = run(None)
    torch.testing.assert_close(run(compressed), exact)


# One tensor saved more than once


def test_a_tensor_saved_twice_is_stored_once() -> None:
    leaf_NI = torch.randn(64, 64, requires_grad=True)
    one, other = nn.Linear(64, 8, bias=False), nn.Linear(64, 8, bias=False)
    compressed = CompressedActivations(nn.ModuleList([one, other]), 0.01, **SMALL)
    with compressed:
        shifted_NI = leaf_NI + 1
        loss = one(shifted_NI).sum()
        once = compressed.ledger.live
        loss = loss + other(shifted_NI).sum()
    assert once == compressed.ledger.live > 0
    loss.backward()


def test_a_shared_tensor_is_kept_as_its_most_sensitive_reader_needs_it() -> None:
    torch.manual_seed(0)
    leaf_NI = torch.rand(256, 64, requires_grad=True)
    coherent, random = nn.Linear(64, 8), nn.Linear(64, 8)
    both = nn.ModuleList([coherent, random])
    compressed, sign_NO = CompressedActivations(both, 0.01, **SMALL), torch.randn(256, 8).sign()

    def loss() -> Tensor:
        shifted_NI = leaf_NI + 0
        return coherent(shifted_NI).sum() + (random(shifted_NI) * sign_NO).sum()

    exact = gradients(both, loss())
    for _ in range(3):
        with compressed:
            value = loss()
        ours = gradients(both, value)
    for index in (0, 2):
        assert float((ours[index] - exact[index]).norm() / exact[index].norm()) < 0.012


def test_bounds_of_a_shared_tensor_grow_again() -> None:
    """They once could only shrink: each took the other's last for a limit."""
    torch.manual_seed(0)
    leaf_NI, one, two = torch.rand(256, 64, requires_grad=True), nn.Linear(64, 8), nn.Linear(64, 8)
    compressed = CompressedActivations(nn.ModuleList([one, two]), 0.01, every=1, **SMALL)
    bounds = []
    for step in range(60):
        sign_NO = torch.ones(256, 8) if step not in (5, 6) else torch.randn(256, 8).sign()
        with compressed:
            shifted_NI = leaf_NI + 0
            loss = one(shifted_NI).sum() + (two(shifted_NI) * sign_NO).sum()
        bounds.append(min(site.eps for site in compressed.sites.values() if site.eps))
        loss.backward()
    assert bounds[7] < 0.8 * bounds[4]
    assert bounds[-1] > 0.98 * bounds[4]


def test_relu_and_the_next_layer_share_one_store_and_signs_stay_exact() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    compressed = CompressedActivations(net, bound=Absolute(0.2), **SMALL)
    leaf_NI, first = torch.randn(256, 64, requires_grad=True), net[0]
    exact = gradients(first, net(leaf_NI).sum())
    with compressed:
        loss = net(leaf_NI).sum()
    kinds = {line.kind: line.stored for line in compressed.ledger.lines.values()}
    assert kinds["sign"] == 0  # the values tell where ReLU was on
    # 0.2 is far above the small outputs; a mask taken from rounded values would be wrong there.
    ours = gradients(first, loss)
    torch.testing.assert_close(ours[1], exact[1])  # of the bias: the mask alone


def test_an_address_used_again_is_another_tensor() -> None:
    leaf_N = torch.randn(4096, requires_grad=True)
    compressed, sums = CompressedActivations(nn.Identity(), 0, **SMALL), torch.zeros(())
    with compressed:
        for factor in range(50):
            scaled_N = leaf_N.detach() * factor  # freed at once, its memory is used again
            sums = sums + (leaf_N * scaled_N).sum()
            del scaled_N
    sums.backward()
    assert leaf_N.grad is not None
    torch.testing.assert_close(leaf_N.grad, leaf_N.detach() * sum(range(50)))


# Changed in place


@pytest.mark.parametrize("size", [8, 8192])
def test_a_change_in_place_raises_as_without_hooks(size: int) -> None:
    leaf_N = torch.ones(size, requires_grad=True)
    with CompressedActivations(nn.Identity(), **SMALL):
        result_N = leaf_N.exp()
        result_N.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result_N.sum().backward()


def test_a_parameter_changed_before_backward_raises() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    with CompressedActivations(net, **SMALL):
        loss = net(torch.randn(64, 64)).sum()
    with torch.no_grad():
        net[1].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_versions_of_one_memory_are_different_tensors() -> None:
    leaf_N = torch.rand(4096, requires_grad=True)
    compressed = CompressedActivations(nn.Identity(), 0, **SMALL)
    held_N = torch.rand(4096)
    with compressed:
        first_N = leaf_N * held_N.clone()
        buffer_N = held_N.clone()
        one = (leaf_N * buffer_N).sum()
        loss = one + first_N.sum()
    buffer_N.mul_(2)  # the product saved it: without hooks this raises
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


# Graphs: cycles, repeated and missing backward passes


def test_outputs_that_are_saved_are_freed_without_the_collector() -> None:
    compressed, alive = CompressedActivations(nn.Identity(), **SMALL), []
    gc.collect()
    gc.disable()
    try:
        for size in (8, 8192):  # kept as it is, and compressed
            leaf_N = torch.randn(size, requires_grad=True)
            with compressed:
                result_N = leaf_N.exp()
                alive.append(weakref.ref(result_N))
                loss = result_N.square().sum()
            del result_N, loss
        assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()
    assert compressed.ledger.live == compressed.ledger.live_raw == 0


def test_backward_twice_and_reading_what_is_saved() -> None:
    net = network()
    torch.manual_seed(3)
    exact = gradients(net, functional.cross_entropy(net(IMAGE_BCHW), LABEL_B))
    compressed = CompressedActivations(net, 0, **SMALL)
    torch.manual_seed(3)
    with compressed:
        loss = functional.cross_entropy(net(IMAGE_BCHW), LABEL_B)
    net.zero_grad()
    loss.backward(retain_graph=True)
    loss.backward()
    twice = [p.grad for p in net.parameters() if p.grad is not None]
    assert equal(twice, [2 * g for g in exact])
    leaf_N = torch.randn(4096, requires_grad=True)
    with compressed:
        result_N = leaf_N.exp()
    assert torch.equal(result_N.grad_fn._saved_result, result_N)
    assert torch.equal(result_N.grad_fn._saved_result, result_N)


def test_unused_branches_leak_nothing() -> None:
    compressed = CompressedActivations(nn.Identity(), **SMALL)
    for _ in range(3):
        leaf_N = torch.randn(8192, requires_grad=True)
        with compressed:
            unused_N, used_N = leaf_N.exp(), leaf_N.sin()
        used_N.sum().backward()
        del unused_N, used_N
        assert compressed.ledger.live == compressed.ledger.live_raw == 0
    assert len(compressed._table) <= 2


def test_several_forwards_before_a_backward_and_accumulation() -> None:
    net = network()
    exact = [2 * g for g in step(net)]
    compressed = CompressedActivations(net, 0, **SMALL)
    losses = []
    for _ in range(2):
        torch.manual_seed(3)
        with compressed:
            losses.append(functional.cross_entropy(net(IMAGE_BCHW), LABEL_B))
    assert equal(gradients(net, losses[0] + losses[1]), exact)
    net.zero_grad()
    for _ in range(2):
        torch.manual_seed(3)
        with compressed:  # the backward pass inside
            functional.cross_entropy(net(IMAGE_BCHW), LABEL_B).backward()
    assert equal([p.grad for p in net.parameters() if p.grad is not None], exact)


def test_double_backward() -> None:
    leaf_N = torch.randn(4096, requires_grad=True)
    with CompressedActivations(nn.Identity(), 0, **SMALL):
        cube = (leaf_N**3).sum()
        (first_N,) = torch.autograd.grad(cube, leaf_N, create_graph=True)
        (second_N,) = torch.autograd.grad(first_N.sum(), leaf_N)
    torch.testing.assert_close(second_N, 6 * leaf_N.detach())


# Views and orders of axes


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[3:50],
        lambda x: x[:1].expand(64, 128),
        lambda x: x.unfold(0, 32, 4),
        lambda x: x.reshape(4, 16, 8, 16).to(memory_format=torch.channels_last),
    ],
)
def test_views_come_back_as_they_were(make: Callable[[Tensor], Tensor]) -> None:
    view = make(torch.randn(64, 128))
    leaf = torch.randn(view.shape, requires_grad=True)
    compressed = CompressedActivations(nn.Identity(), 0, **SMALL)
    with compressed:
        product = leaf * view
    saved = product.grad_fn._saved_other
    assert torch.equal(saved, view)
    if view.is_contiguous(memory_format=torch.channels_last) if view.ndim == 4 else False:
        assert saved.stride() == view.stride()
    product.sum().backward()
    assert torch.equal(leaf.grad, view)


def test_an_expanded_view_costs_what_it_stores() -> None:
    leaf = torch.randn(4000, 128, requires_grad=True)
    row = torch.randn(1, 128).expand(4000, 128)
    compressed = CompressedActivations(nn.Identity(), 0, **SMALL)
    with compressed:
        product = leaf * row
    assert compressed.ledger.live <= 128 * 4 + 64
    product.sum().backward()


def test_channels_last_gives_the_same_kernels_to_the_bit() -> None:
    net = network().to(memory_format=torch.channels_last)
    global_image = IMAGE_BCHW.to(memory_format=torch.channels_last)

    def run(compressed: CompressedActivations | None) -> list[Tensor]:
        torch.manual_seed(3)
        if compressed is None:
            return gradients(net, net(global_image).square().sum())
        with compressed:
            loss = net(global_image).square().sum()
        return gradients(net, loss)

    exact = run(None)
    assert equal(run(CompressedActivations(net, 0, **SMALL)), exact)


def test_a_small_part_of_a_large_tensor_does_not_hold_it() -> None:
    leaf_N, large_NM = torch.randn(8, requires_grad=True), torch.randn(8, 100_000)
    compressed = CompressedActivations(nn.Identity())
    with compressed:
        product_N = leaf_N * large_NM[:, 0]
    assert compressed.ledger.live == 8 * 4
    product_N.sum().backward()
    assert torch.equal(leaf_N.grad, large_NM[:, 0])


def test_small_tensors_are_kept() -> None:
    leaf_N = torch.randn(1000, requires_grad=True)
    compressed = CompressedActivations(nn.Identity(), bound=Absolute(10.0))
    with compressed:
        loss = (leaf_N.exp() * 1).sum()
    loss.backward()
    assert torch.equal(leaf_N.grad, leaf_N.detach().exp())


# Composition


@pytest.mark.parametrize("reentrant", [False, True])
def test_around_a_checkpoint_what_it_recomputes_from_is_exact(reentrant: bool) -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    leaf_NI = torch.randn(64, 64, requires_grad=True)
    compressed = CompressedActivations(inner, bound=Absolute(0.5), **SMALL)

    def run() -> Tensor:
        loss: Tensor = checkpoint(inner, leaf_NI * 2, use_reentrant=reentrant).sum()
        return loss

    exact = gradients(inner, run())
    with compressed:
        loss = run()
    assert compressed.ledger.peak <= 64 * 64 * 4 * 1.2  # what is inside is not kept
    assert equal(gradients(inner, loss), exact)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.hung = x
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def test_a_custom_function_gets_what_it_saved() -> None:
    leaf_N = torch.randn(4096, requires_grad=True)
    compressed = CompressedActivations(nn.Identity(), 0.01)
    with compressed:
        loss = Doubled.apply(leaf_N).sum()
    loss.backward()
    assert torch.equal(leaf_N.grad, 2 * leaf_N.detach())


def test_amp_with_a_loss_scaler_needs_no_other_bounds() -> None:
    net = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    compressed, plain = (
        CompressedActivations(net, 0.01, **SMALL),
        CompressedActivations(net, 0.01, **SMALL),
    )
    for _ in range(3):
        torch.manual_seed(3)
        with compressed, torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(net(IMAGE_BCHW).float(), LABEL_B)
        net.zero_grad()
        scaler.scale(loss).backward()
        torch.manual_seed(3)
        with plain, torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(net(IMAGE_BCHW).float(), LABEL_B)
        gradients(net, loss)
    reaches = {name: site.reach for name, site in compressed.sites.items() if site.reach}
    assert len(reaches) >= 5
    for name, reach in reaches.items():
        assert reach == pytest.approx(plain.sites[name].reach, rel=0.05)


def test_overflow_of_a_loss_scaler_leaves_the_bounds_alone() -> None:
    net = network()
    compressed = CompressedActivations(net, 0.01, **SMALL)
    step(net, compressed)
    before = {name: site.reach for name, site in compressed.sites.items()}
    torch.manual_seed(3)
    with compressed:
        loss = functional.cross_entropy(net(IMAGE_BCHW), LABEL_B) * float("inf")
    gradients(net, loss)
    assert {name: site.reach for name, site in compressed.sites.items()} == before


def test_only_the_innermost_hooks_act() -> None:
    net, seen = network(), []
    compressed = CompressedActivations(net, 0.01, **SMALL)
    with (
        compressed,
        torch.autograd.graph.saved_tensors_hooks(
            lambda t: (seen.append(1), t.detach())[1], lambda t: t
        ),
    ):
        loss = functional.cross_entropy(net(IMAGE_BCHW), LABEL_B)
    assert seen
    assert compressed.ledger.peak == 0
    loss.backward()


def test_each_thread_enters_for_itself() -> None:
    net = network().eval()
    exact = step(net)
    compressed, results = CompressedActivations(net, 0.01, **SMALL), {}

    def outside() -> None:
        functional.cross_entropy(net(IMAGE_BCHW), LABEL_B)
        results["outside"] = compressed.ledger.peak

    def inside(number: int) -> None:
        with compressed:
            loss = functional.cross_entropy(net(IMAGE_BCHW), LABEL_B)
        wanted = list(net.parameters())
        results[number] = list(torch.autograd.grad(loss, wanted))

    with compressed:
        thread = threading.Thread(target=outside)
        thread.start()
        thread.join()
    assert results["outside"] == 0
    threads = [threading.Thread(target=inside, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(distance(results[number], exact) for number in range(4)) < 0.02
    assert compressed.ledger.live == compressed.ledger.live_raw == 0


@pytest.mark.parametrize("inside", [False, True])
def test_transforms_of_torch_func_are_refused_clearly(inside: bool) -> None:
    compressed = CompressedActivations(nn.Identity())

    def within(x: Tensor) -> Tensor:
        with compressed:
            return x.exp().sum()

    with pytest.raises(ActivationError, match=r"torch\.func .* leave the block"):
        if inside:
            torch.func.grad(within)(torch.randn(3))
        else:
            with compressed:
                torch.func.grad(lambda x: x.exp().sum())(torch.randn(3))
    with compressed:  # and the block can be entered again
        torch.randn(3, requires_grad=True).exp().sum().backward()


class Wrong:
    nbytes = 1

    def __init__(self, wrong: Tensor) -> None:
        self.wrong = wrong

    def restore(self) -> Tensor:
        return self.wrong


@pytest.mark.parametrize("wrong", [torch.zeros(4096, dtype=torch.float64), torch.zeros(1)])
def test_a_codec_that_gives_something_else_is_found(wrong: Tensor) -> None:
    leaf_N = torch.randn(4096, requires_grad=True)
    compressed = CompressedActivations(nn.Identity(), encoder=lambda *_: Wrong(wrong))
    with compressed:
        loss = leaf_N.exp().sum()
    with pytest.raises(CodecError, match="came back as"):
        loss.backward()


def test_an_error_inside_the_block_ends_it() -> None:
    compressed = CompressedActivations(nn.Identity())
    with pytest.raises(ZeroDivisionError), compressed:
        _ = 1 / 0
    leaf_N = torch.randn(4096, requires_grad=True)
    leaf_N.exp()
    assert compressed.ledger.peak == 0


# Bounds


@pytest.mark.parametrize("bound", [Absolute(0.01), Relative(1e-3), PointwiseRelative(1e-2)])
def test_a_fixed_bound_holds_for_every_value(bound: Any) -> None:
    leaf_NI = torch.randn(128, 64, requires_grad=True)
    linear = nn.Linear(64, 64, bias=False)
    with CompressedActivations(linear, bound=bound, **SMALL):
        output = linear(leaf_NI * 1)
    saved = output.grad_fn._saved_self
    error, value = (saved - leaf_NI).abs().detach(), leaf_NI.detach()
    limit = {
        Absolute: torch.tensor(0.01), Relative: 1e-3 * (value.max() - value.min()),
        PointwiseRelative: 1e-2 * value.abs(),
    }[type(bound)]  # fmt: skip
    assert bool((error <= limit).all())
    assert float(error.max()) > 0


NAN = float("nan")
MISTAKES = {
    "fraction": (-0.1, 1.0, NAN, "0.01", None, [0.01], True),
    "bound": (0.01, "0.1"),
    "budget": (0, -1, NAN, "6GB?", "50%", [1], "0.5B", "1e-30", ""),
    "blocks": ("0", "body", None, 3, [1]),
    "bits": (3, "8", None, 8.0),
    "every": (0, -1, 2.5, NAN, "10", None, True),
    "smallest": (0, NAN, "10", None),
    "seed": ("a", NAN, None),
    "encoder": (None, 3),
    "module": (None, 3),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in MISTAKES for value in MISTAKES[name]]
)
def test_mistakes(name: str, value: Any) -> None:
    with pytest.raises(ActivationError, match=f"^{name}: expected"):
        CompressedActivations(**{"module": nn.Linear(2, 2), name: value})


def test_blocks_that_are_not_there_are_named_without_a_budget_too() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ActivationError, match="blocks: there is no module 'body'; there is: 0"):
        CompressedActivations(net, blocks=["body"])


def test_misuse_of_the_block_and_of_a_state() -> None:
    compressed = CompressedActivations(nn.Linear(2, 2))
    with pytest.raises(ActivationError, match="with statement"):
        compressed.__exit__(None, None, None)
    with pytest.raises(ActivationError, match="state: expected step and sites"):
        compressed.load_state_dict({})


def test_training_goes_on_exactly_from_a_stored_state() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))

    def one(compressed: CompressedActivations) -> list[Tensor]:
        with compressed:
            loss = net(IMAGE_BCHW).square().sum()
        return gradients(net, loss)

    whole = CompressedActivations(net, 0.02, **SMALL)
    for _ in range(3):
        one(whole)
    stopped = CompressedActivations(net, 0.02, **SMALL)
    for _ in range(2):
        one(stopped)
    resumed = CompressedActivations(net, 0.02, **SMALL)
    resumed.load_state_dict(stopped.state_dict())
    one(resumed)
    assert equal(one(resumed), one(whole))
