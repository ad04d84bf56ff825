"""Machines as their owners describe them, for predictions about what is not at hand.

Bandwidths are those of data sheets; what a training reaches of the processor's peak, and the
latency of a message between GPUs, are assumptions, named here so that they can be doubted.
"""

from __future__ import annotations

from typing import NamedTuple

from scadl_core.admm.steptime import Link
from scadl_core.errors import ConfigError, nearest
from scadl_core.tuning.machine import Machine

# Assumed: what convolutional and transformer networks reach of the peak of matrix products.
UTILISATION = 0.35
_LAUNCH = 2e-5  # seconds, assumed: of a message between GPUs of two nodes, libraries included


class Network(NamedTuple):
    """A link between nodes; bytes a second of one node in one direction."""

    link: Link
    source: str


class Device(NamedTuple):
    """A GPU: operations a second, bytes a second of its memory and of its links in a node."""

    matmul: float
    stream: float
    local: float
    memory: float
    source: str


LINKS = {
    "slingshot": Network(
        Link(_LAUNCH, 4 * 25e9), "four 200 Gb/s interfaces a node (Perlmutter, Frontier)"),
    "infiniband": Network(
        Link(_LAUNCH, 4 * 25e9), "four HDR interfaces of 200 Gb/s a node (JUWELS Booster)"),
    "infiniband-edr": Network(
        Link(_LAUNCH, 2 * 12.5e9), "two EDR ports of 100 Gb/s a node (Summit)"),
    "ethernet": Network(Link(1e-4, 1.25e9), "10 Gb/s; latency of TCP assumed"),
    "ethernet-1g": Network(Link(1e-4, 0.125e9), "1 Gb/s; latency of TCP assumed"),
}  # fmt: skip
DEVICES = {
    "v100": Device(15.7e12, 0.9e12, 150e9, 16e9, "NVIDIA V100 SXM2: float32, NVLink 2"),
    "a100": Device(156e12, 1.555e12, 300e9, 40e9, "NVIDIA A100 SXM4 40 GB: TF32, NVLink 3"),
    "h100": Device(494e12, 3.35e12, 450e9, 80e9, "NVIDIA H100 SXM5: dense TF32, NVLink 4"),
}
# Assumed of the codec on a GPU: memory-bound, several passes.
_CODEC_PASSES = 20


def preset(nodes: int, gpus_per_node: int, link: str, gpu: str) -> Machine:
    """A machine of so many nodes.

    Args:
        nodes: N, at least 1.
        gpus_per_node: g, at least 1, one rank each.
        link: One of ``LINKS``.
        gpu: One of ``DEVICES``.

    Raises:
        ConfigError: None of these, or no nodes.
    """
    for name, given, known in (("link", link, LINKS), ("gpu", gpu, DEVICES)):
        if given not in known:
            raise ConfigError(f"{name}={given}: no such preset{nearest(given, known)}")
    for name, number in (("nodes", nodes), ("gpus_per_node", gpus_per_node)):
        if number < 1:
            raise ConfigError(f"{name}: expected at least 1, got {number}")
    device, between = DEVICES[gpu], LINKS[link].link
    local = Link(_LAUNCH / 2, device.local)
    alone = Link(between.latency, between.bandwidth / gpus_per_node)
    return Machine(
        nodes * gpus_per_node, gpus_per_node, between, local,
        pair=local if nodes == 1 else alone,
        matmul=UTILISATION * device.matmul, stream=device.stream,
        # The latency of a solver's call, and a tenth of what products reach (assumed).
        factor=(2e-4, (4 / 3) / (0.1 * UTILISATION * device.matmul)),
        encode=device.stream / _CODEC_PASSES, decode=device.stream / _CODEC_PASSES,
        memory=device.memory,
    )  # fmt: skip
