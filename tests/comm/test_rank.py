"""Who started this process, from the variables that launchers set by their documents."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scadl_core.comm.rank import Launch, detect, expand_counts, first_host, free_port
from scadl_core.errors import LaunchError

SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}


class FakeComm:
    """As much of an MPI communicator as is asked for."""

    def __init__(self, rank: int, size: int, local: FakeComm | None = None) -> None:
        self.rank, self.size, self.local = rank, size, local

    def Split_type(self, kind: int) -> FakeComm:
        assert self.local is not None
        return self.local

    def bcast(self, value: Any) -> Any:
        return ("node0", 4242) if value is None else value

    def Free(self) -> None:
        pass


@pytest.fixture
def fake_mpi(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(rank: int, size: int, local_rank: int, local_size: int) -> None:
        world = FakeComm(rank, size, FakeComm(local_rank, local_size))
        mpi = SimpleNamespace(
            COMM_WORLD=world, COMM_TYPE_SHARED=1, Get_library_version=lambda: "Fake MPI 1.0\nmore"
        )
        monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))

    return install


def test_nobody_started_it() -> None:
    assert detect({}) == Launch("none", 0, 1, 0, 1)


def test_torchrun_says_all_of_it() -> None:
    environ = {
        "TORCHELASTIC_RUN_ID": "x",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "1234",
    }
    expected = Launch("torchrun", 5, 8, 1, 4, "node0", 1234)
    assert detect(environ) == expected
    # It is believed before whatever else is around, as in a Slurm job on an MPI machine.
    assert detect(environ | SRUN | {"PMI_SIZE": "2"}) == expected


def test_the_three_variables_of_torch_distributed_suffice() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here"}
    assert detect(environ) == Launch("torchrun", 1, 2, 1, 2, "here", 29500)


@pytest.mark.parametrize(
    "variables",
    [
        {"PMI_SIZE": "4"},
        {"OMPI_COMM_WORLD_SIZE": "4"},
        {"MV2_COMM_WORLD_SIZE": "4"},
        {"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0"},
    ],
    ids=["mpich", "openmpi", "mvapich", "srun --mpi=pmix"],
)
def test_mpi_is_asked_where_its_launcher_speaks(
    variables: dict[str, str], fake_mpi: Callable[..., None]
) -> None:
    fake_mpi(rank=3, size=4, local_rank=1, local_size=2)
    assert detect(variables) == Launch("mpi", 3, 4, 1, 2, "node0", 4242)


def test_ranks_of_one_host_meet_without_its_name(fake_mpi: Callable[..., None]) -> None:
    fake_mpi(rank=0, size=2, local_rank=0, local_size=2)
    found = detect({"PMI_SIZE": "2"})
    assert (found.size, found.address) == (2, "127.0.0.1")
    assert 0 < found.port < 65536


def test_mpirun_inside_a_slurm_allocation_is_mpi(fake_mpi: Callable[..., None]) -> None:
    fake_mpi(rank=1, size=2, local_rank=1, local_size=2)
    allocation = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    found = detect(allocation | {"PMI_SIZE": "2"})
    assert (found.launcher, found.rank, found.size) == ("mpi", 1, 2)
    assert detect(allocation | {"PMI_SIZE": "1"}) == Launch("none")


def test_srun_with_uneven_tasks_per_node() -> None:
    found = detect(SRUN)
    assert found == Launch("slurm", 2, 3, 0, 1, "gpu07", found.port)
    other = SRUN | {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0"}
    assert detect(other) == Launch("slurm", 1, 3, 1, 2, "gpu07", found.port)
    # Two steps of a job may run side by side; a port below 30000 is no ephemeral one.
    ports = {detect(SRUN | {"SLURM_STEP_ID": str(step)}).port for step in range(20)}
    assert len(ports) > 15
    assert all(12000 <= port < 30000 for port in ports)
    assert detect(SRUN | {"MASTER_PORT": "1111"}).port == 1111


def test_srun_on_one_node_meets_on_the_loopback() -> None:
    one = SRUN | {"SLURM_STEP_TASKS_PER_NODE": "3", "SLURM_NODEID": "0", "SLURM_LOCALID": "2"}
    found = detect(one)
    assert (found.local_rank, found.local_size, found.address) == (2, 3, "127.0.0.1")


def test_a_step_of_one_task_in_a_larger_allocation_is_single() -> None:
    assert detect(SRUN | {"SLURM_NTASKS": "3", "SLURM_STEP_NUM_TASKS": "1"}) == Launch("none")


def test_sbatch_without_srun_is_an_error_with_the_remedy() -> None:
    with pytest.raises(LaunchError) as caught:
        detect({"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4"})
    assert str(caught.value) == (
        "Slurm allocated 4 tasks, but this process was not started by srun and would be alone: "
        "start with `srun scadl ...` (or `srun -n 1 scadl ...` for a single process)"
    )


def test_a_foreign_mpi_is_an_error_with_the_remedy(run_ranks: Callable[..., list[Any]]) -> None:
    """The real mpi4py, alone in its world, where a launcher announced two processes."""

    def message() -> str:
        with pytest.raises(LaunchError) as caught:
            detect({"PMI_SIZE": "2"})
        return str(caught.value)

    [text] = run_ranks(1, message)
    assert text.startswith("the launcher started 2 processes, but MPI says 1: mpi4py is bound to")
    assert "pip install --force-reinstall --no-binary mpi4py mpi4py" in text
    assert text.endswith("or start with torchrun or srun --mpi=none")


def test_without_mpi4py_an_mpi_launcher_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(LaunchError, match="started 2 processes, but mpi4py cannot be loaded") as e:
        detect({"PMI_SIZE": "2"})
    assert "pip install 'scadl[mpi]'" in str(e.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4", [4]), ("2,1", [2, 1]), ("4(x2),1", [4, 4, 1]), ("1(x3),2(x2)", [1, 1, 1, 2, 2])],
)
def test_run_lengths_as_sbatch_documents_them(text: str, expected: list[int]) -> None:
    assert expand_counts(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("gpu[007-010,020]", "gpu007"),
        ("gpu[3,7]-ib", "gpu3-ib"),
        ("a[1-2],b[4-5]", "a1"),
        ("host-a.example.org", "host-a.example.org"),
    ],
)
def test_the_first_host_is_that_of_scontrol_show_hostnames(text: str, expected: str) -> None:
    assert first_host(text) == expected


def test_no_host_list_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"SLURM_STEP_NODELIST='\[' is not a host list"):
        first_host("[")


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as taker:
        taker.bind(("", free_port()))
