"""``scadl doctor``: what this machine has, what is missing, and the command that installs it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# What is checked beside the core: module, what it is for, how to get it.
_OPTIONAL = (
    ("mpi4py", "ranks under mpirun", "pip install 'scadl[mpi]'"),
    ("xarray", "climate: NetCDF", "pip install scadl"),
    ("netCDF4", "climate: NetCDF", "pip install scadl"),
    ("tensorboard", "logger=tensorboard", "pip install scadl"),
    ("cupy", "compression kernels on NVIDIA GPUs", "pip install 'scadl[gpu]'"),
    ("hydra_plugins.hydra_joblib_launcher", "hydra/launcher=joblib", "pip install 'scadl[sweep]'"),
    (
        "hydra_plugins.hydra_submitit_launcher",
        "hydra/launcher=submitit_slurm",
        "pip install 'scadl[slurm]'",
    ),
)


def doctor(console: Console) -> None:
    """Prints what was found.

    Args:
        console: Where to print.
    """
    table = Table(
        "part", "found", "what to do", title="ScaDL on this machine", title_justify="left"
    )
    for row in (*_machine(), *_launchers(), *(_package(*package) for package in _OPTIONAL)):
        table.add_row(*map(escape, row))
    console.print(table)


def _machine() -> list[tuple[str, str, str]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    hint = "" if gpus else "none is needed; on an NVIDIA machine: install a CUDA build of torch"
    return [
        ("Python", platform.python_version(), ""),
        ("torch", torch.__version__, ""),
        ("CPU cores", str(cores), f"{torch.get_num_threads()} threads are used"),
        ("GPUs", ", ".join(gpus) or "none", hint),
    ]


def _launchers() -> list[tuple[str, str, str]]:
    rows = []
    for command, hint in (
        ("mpirun", "pip install 'scadl[mpi]' or load your site's MPI module"),
        ("srun", "only on Slurm clusters"),
    ):
        path = shutil.which(command)
        rows.append((command, path or "not on PATH", "" if path else hint))
    rows.append(("MPI", *_mpi()))
    return rows


def _mpi() -> tuple[str, str]:
    if importlib.util.find_spec("mpi4py") is None:
        return "no mpi4py", "pip install 'scadl[mpi]'"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return f"mpi4py finds no MPI library ({error})".split("\n")[
            0
        ], "pip install 'scadl[mpi]' or load your site's MPI module"
    return MPI.Get_library_version().split("\n")[0].strip(), ""


def _package(module: str, purpose: str, remedy: str) -> tuple[str, str, str]:
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        return module, "missing", f"{purpose}: {remedy}"
    try:
        return module, version(module.split(".")[-1].replace("_", "-")), purpose
    except PackageNotFoundError:
        return module, "found", purpose
