"""Reads from the environment who started this process: MPI, torchrun, Slurm, or nobody.

Every launcher announces its ranks in variables of its own. The first that speaks is believed, in
this order: torchrun, MPI, Slurm's ``srun``. A launcher that announces several ranks which this
Python cannot join is an error with the remedy in it: silently training N copies of the same model
is the worst answer.
"""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from scadl_core.errors import LaunchError

# The variables in which MPI launchers say how many processes they started (MPICH and Intel, Open
# MPI, MVAPICH).
_MPI_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


@dataclass(frozen=True)
class Launch:
    """What a launcher says of one process.

    Attributes:
        launcher: ``"none"``, ``"torchrun"``, ``"mpi"`` or ``"slurm"``.
        rank: This process among all, from 0.
        size: How many processes there are.
        local_rank: This process among those of its host, from 0.
        local_size: How many processes its host has.
        address: The host of rank 0, where all meet.
        port: The TCP port there.
    """

    launcher: str
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = "127.0.0.1"
    port: int = 0


def detect(environ: Mapping[str, str]) -> Launch:
    """Finds the launcher of this process.

    Args:
        environ: The process's environment variables.

    Returns:
        What the launcher says of this process.

    Raises:
        LaunchError: Several processes were announced and this one cannot join them.
    """
    if "TORCHELASTIC_RUN_ID" in environ or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environ.keys():
        return _from_torchrun(environ)
    announced = next((int(environ[v]) for v in _MPI_SIZE_VARIABLES if v in environ), None)
    if announced is None and "PMIX_RANK" in environ:
        announced = _slurm_tasks(environ)
    if announced is not None and announced > 1:
        return _from_mpi(announced)
    tasks = _slurm_tasks(environ)
    if tasks > 1 and announced is None:
        if "SLURM_STEP_ID" not in environ:
            raise LaunchError(
                f"Slurm allocated {tasks} tasks, but this process was not started by srun and "
                "would be alone: "
                "start with `srun scadl ...` (or `srun -n 1 scadl ...` for a single process)"
            )
        return _from_slurm(environ, tasks)
    return Launch("none")


def _from_torchrun(environ: Mapping[str, str]) -> Launch:
    size = int(environ["WORLD_SIZE"])
    return Launch(
        "torchrun",
        rank=int(environ["RANK"]),
        size=size,
        local_rank=int(environ.get("LOCAL_RANK", environ["RANK"])),
        local_size=int(environ.get("LOCAL_WORLD_SIZE", size)),
        address=environ.get("MASTER_ADDR", "127.0.0.1"),
        port=int(environ.get("MASTER_PORT", "29500")),
    )


def _from_mpi(announced: int) -> Launch:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"an MPI launcher started {announced} processes, but mpi4py cannot be loaded "
            f"({error}): "
            "pip install 'scadl[mpi]' or load your site's MPI module, or start with torchrun or "
            "srun --mpi=none"
        ) from error
    world = MPI.COMM_WORLD
    if world.size != announced:
        library = MPI.Get_library_version().split("\n")[0].strip()
        raise LaunchError(
            f"the launcher started {announced} processes, but MPI says {world.size}: mpi4py is "
            "bound to another MPI "
            f"({library}); use the mpirun that belongs to it, or rebuild it with "
            "`pip install --force-reinstall --no-binary mpi4py mpi4py`, or start with torchrun or "
            "srun --mpi=none"
        )
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    address = socket.gethostname() if local.size < world.size else "127.0.0.1"
    address, port = world.bcast((address, free_port()) if world.rank == 0 else None)
    launch = Launch("mpi", world.rank, world.size, local.rank, local.size, address, port)
    local.Free()
    return launch


def _slurm_tasks(environ: Mapping[str, str]) -> int:
    return int(environ.get("SLURM_STEP_NUM_TASKS", environ.get("SLURM_NTASKS", "1")))


def _from_slurm(environ: Mapping[str, str], tasks: int) -> Launch:
    per_node = expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", str(tasks)))
    hosts = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_NODELIST", "127.0.0.1"))
    # One port a job step, away from the ephemeral range, the same on every rank without asking
    # anyone.
    step = f"{environ.get('SLURM_JOB_ID')}.{environ['SLURM_STEP_ID']}"
    return Launch(
        "slurm",
        rank=int(environ["SLURM_PROCID"]),
        size=tasks,
        local_rank=int(environ["SLURM_LOCALID"]),
        local_size=per_node[int(environ.get("SLURM_NODEID", "0"))],
        address="127.0.0.1" if len(per_node) == 1 else first_host(hosts),
        port=int(environ.get("MASTER_PORT", 12000 + zlib.crc32(step.encode()) % 18000)),
    )


def expand_counts(counts: str) -> list[int]:
    """Expands Slurm's run-length list of tasks a node, such as ``"4(x2),1"`` to ``[4, 4, 1]``."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", counts)
    return [int(count) for count, times in found for _ in range(int(times or 1))]


def first_host(hosts: str) -> str:
    """The first name of a Slurm host list, such as ``"gpu[007-010,020]"`` to ``"gpu007"``."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", hosts)
    if match is None:
        raise LaunchError(
            f"SLURM_STEP_NODELIST={hosts!r} is not a host list; set MASTER_ADDR and use torchrun"
        )
    return "".join(part or "" for part in match.groups())


def free_port() -> int:
    """A TCP port that was free a moment ago on this host."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
