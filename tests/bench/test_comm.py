"""Whether the links of `scadl bench comm` have the rates that its tables say."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from scadl_core.bench.exchanges import resnet
from scadl_core.bench.links import Host, hosts, refusal

# Counts what arrives after the first bytes, which the token bucket lets pass at once.
RECEIVE = """
import socket, time
with socket.create_server(("0.0.0.0", 29519)) as server:
    print("ready", flush=True)
    link, _ = server.accept()
    count, began = -1, 0.0
    while chunk := link.recv(1 << 20):
        count = count + len(chunk) if began else 0
        began = began or time.perf_counter()
    print(8 * count / (time.perf_counter() - began) / 1e6)
"""
SEND = """
import socket, sys
link = socket.create_connection((sys.argv[1], 29519))
link.sendall(bytes(int(sys.argv[2])))
"""


@pytest.fixture(params=[100.0, 1000.0])
def link(request: pytest.FixtureRequest) -> Iterator[tuple[float, list[Host]]]:
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    with hosts(2, request.param) as joined:
        yield request.param, joined


def test_the_link_is_as_fast_as_it_says(link: tuple[float, list[Host]]) -> None:
    megabits, (first, second) = link
    size = int(megabits * 1e6 / 8)  # a second
    python = [sys.executable, "-S", "-E", "-c"]
    receiver = subprocess.Popen(
        second.command([*python, RECEIVE]), stdout=subprocess.PIPE, text=True
    )
    with receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        subprocess.run(first.command([*python, SEND, second.address, str(size)]), check=True)
        measured = float(receiver.stdout.readline())
    # Headers take 4 %; on a busy machine the faster link is not always kept full.
    assert 0.5 * megabits < measured < 1.02 * megabits
    if megabits == 100:
        assert measured > 0.85 * megabits


def test_nothing_is_left_behind() -> None:
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)

    def there() -> str:
        return subprocess.run(
            ["ip", "netns", "list"], capture_output=True, text=True, check=True
        ).stdout

    with pytest.raises(RuntimeError, match="in between"), hosts(2, 100) as joined:
        assert all(host.name in there() for host in joined)
        raise RuntimeError("in between")
    time.sleep(0.1)
    assert not any(host.name in there() for host in joined)


def test_the_network_has_five_million_parameters() -> None:
    assert 5e6 < sum(p.numel() for p in resnet().parameters()) < 8e6
