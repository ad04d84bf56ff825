"""Hosts that are joined by a slow network, on this one: network namespaces with shaped rates.

Real sockets and TCP over pairs of virtual interfaces; `tc` with a token bucket limits what each
side sends, as a switched network with full-duplex links of that rate does. Latency stays that of
this host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

INTERFACE = "eth0"
_PREFIX = "10.213.77."


@dataclass(frozen=True)
class Host:
    """A network namespace.

    Attributes:
        name: Of the namespace.
        address: Of its interface ``eth0``.
    """

    name: str
    address: str

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs another one on this host."""
        return ["ip", "netns", "exec", self.name, *words]


def refusal() -> str | None:
    """Why no namespaces can be made here; None where they can."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}`: apt-get install iproute2"
    probe = f"scadl-probe-{os.getpid()}"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    if made.returncode:
        return f"no network namespace can be made here ({made.stderr.strip()}): be root"
    _run("ip", "netns", "del", probe)
    return None


@contextmanager
def hosts(count: int, megabits: float) -> Iterator[list[Host]]:
    """Hosts on one switch, for as long as the context lasts.

    Args:
        count: How many.
        megabits: Of each link in each direction, 10^6 bits a second.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is undone
    switch = f"scadl{os.getpid()}"
    made = [Host(f"{switch}-{n}", f"{_PREFIX}{n + 1}") for n in range(count)]
    try:
        _run("ip", "link", "add", switch, "type", "bridge")
        _run("ip", "link", "set", switch, "up")
        for number, host in enumerate(made):
            _connect(host, switch, f"sc{os.getpid()}.{number}", megabits)
        yield made
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", switch], capture_output=True, check=False)
        signal.signal(signal.SIGTERM, before)


def _connect(host: Host, switch: str, port: str, megabits: float) -> None:
    _run("ip", "netns", "add", host.name)
    peer = ("peer", "name", INTERFACE, "netns", host.name)
    _run("ip", "link", "add", port, "type", "veth", *peer)
    _run("ip", "link", "set", port, "master", switch, "up")
    _run(*host.command(["ip", "address", "add", f"{host.address}/24", "dev", INTERFACE]))
    _run(*host.command(["ip", "link", "set", INTERFACE, "up"]))
    _run(*host.command(["ip", "link", "set", "lo", "up"]))
    # A bucket of 2 ms, and room for what a sender has in flight: dropped packets would be another
    # experiment.
    bucket = max(65536, int(megabits * 1e6 / 8 * 2e-3))
    rate = ("root", "tbf", "rate", f"{megabits}mbit", "burst", str(bucket), "limit", "16777216")
    _run("tc", "qdisc", "add", "dev", port, *rate)
    _run(*host.command(["tc", "qdisc", "add", "dev", INTERFACE, *rate]))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
