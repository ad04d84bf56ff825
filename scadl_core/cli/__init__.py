"""The command ``scadl``: its verbs, and what leaves the process.

Exit status: 0 done; 2 a mistake of the user's (one message, no traceback); 75 stopped by a signal
with everything saved; 130 interrupted; 1 anything else.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

from scadl_core.errors import ConfigError, ExhaustedError, ScadlError, nearest
from scadl_core.files import FULL, PLACES, unwritable

_USAGE = """usage: scadl VERB [APP] [key=value ...]

  scadl list                               pipelines, their data sets, models and experiments
  scadl train APP [-m] [key=value ...]     train, test and report; -m tries every combination of
  a=1,2 b=x,y
  scadl evaluate APP run.dir=DIR [...]     score a finished run, on other data with data.path=...
  scadl predict APP run.dir=DIR input=FILE [output=FILE]
  scadl export APP run.dir=DIR [format=onnx|pt2] [output=FILE]
  scadl check APP data.path=... [...]      look into your files; writes the configuration that
  trains on them
  scadl config APP [key=value ...]         what would run, checked, without running it
  scadl compare DIR ... [--out FILE]       finished runs on one page: scores with intervals over
  seeds, time, memory, bytes, what was configured differently
  scadl plan APP [key=value ...]           before running: time, memory, largest batch and bytes of
  a step, with and without each power
  scadl tune APP [--error=0.01] [--memory=6GiB] [key=value ...]
                                           tries the plans that are predicted to be fast; writes the
  best as a configuration
  scadl tune APP --simulate nodes=256 gpus_per_node=4 link=slingshot gpu=a100
                                           predicted scaling curves on a larger machine
  scadl new NAME --from APP                a pipeline of your own, begun as a copy
  scadl rerun DIR                          a run again from its folder; shows what came out
  differently
  scadl bench NAME [--quick] [--out DIR]   this package beside its peers; claims: each power in each
  pipeline; all: every table
  scadl study memory APP [--quick]         trainings with every compressor of activations and bound
  scadl study convergence APP benchmark=NAME [data.path=...]
                                           epochs, seconds and bytes to a published target
  scadl doctor                             devices, MPI, versions, what is missing

Everything after APP is Hydra; --config-dir DIR adds a folder of your own choices."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: What follows ``scadl``; by default that of the process.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except ScadlError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("scadl: interrupted; resume=auto goes on from the last checkpoint", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader left; say nothing more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if (mistake := _mistake_of(error)) is None:
            raise
        return _fail(mistake)


def script() -> None:
    """The console script: the command, and then out, without leaving other ranks behind."""
    # Threads that spin while they wait cost a step more than they gain where the cores are shared
    # (measured: .38 against .23 s busy, .18 against .22 s free). Read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        status = main()
    except Exception:
        traceback.print_exc()
        abort_others(1)
        status = 1
    if status in (0, 2, 75) and "torch.distributed" in sys.modules:
        from scadl_core.comm import World

        World.leave()
    sys.exit(status)


def _run(words: list[str]) -> int:
    from scadl_core.cli import verbs  # what a verb needs is imported when it is called

    known: dict[str, Callable[[list[str]], int]] = {
        name.removesuffix("_"): getattr(verbs, name) for name in verbs.__all__
    }
    if not words or words[0] == "help" or {"-h", "--help"} & set(words[:2]):
        print(_USAGE)
        return 0 if words else 2
    if words[0] == "--version":
        from scadl_core import __version__

        print(__version__)
        return 0
    if words[0] not in known:
        raise ConfigError(f"no verb is called {words[0]!r}{nearest(words[0], known)}")
    return known[words[0]](words[1:])


def _mistake_of(error: Exception) -> ScadlError | None:
    """What a person can mend, of an error that no part of the program has named: a place that
    cannot be written, a machine that is too small; None: it is a defect.
    """
    if isinstance(error, OSError):
        named = error.filename is not None
        if error.errno in FULL or (named and error.errno in PLACES):
            return unwritable(error.filename if named else "a file of this run", error)
    # torch's own, by name: nothing is imported for a message
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    ):  # fmt: skip
        return ExhaustedError(
            f"out of memory ({' '.join(str(error).split())[:200]}); take a smaller "
            "loader.batch_size or model, or keep activations compressed with memory=adaptive; "
            "resume=auto goes on from the last checkpoint"
        )
    return None


def _fail(error: ScadlError) -> int:
    if "SCADL_TRACEBACK" in os.environ:
        traceback.print_exception(error)
    if error.local or guessed_rank() == 0:
        print(f"scadl: {error}", file=sys.stderr)
    if error.local:
        abort_others(error.exit_status)
    return error.exit_status


def guessed_rank() -> int:
    """This process's rank as far as its environment tells, also where the ranks could not meet."""
    names = (
        "RANK",
        "PMI_RANK",
        "OMPI_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_RANK",
        "PMIX_RANK",
        "SLURM_PROCID",
    )
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def abort_others(status: int) -> None:
    """Ends the other ranks of an MPI run, which wait in a collective that this rank will never
    join.

    Args:
        status: The exit status of all.
    """
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.COMM_WORLD.size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            MPI.COMM_WORLD.Abort(status)
