"""The gradient solver: Lightning's Trainer, told what it would otherwise guess."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only

from scadl_core.comm import World
from scadl_core.comm.gradients import GradientExchange
from scadl_core.errors import ConfigError, LaunchError, ScadlError
from scadl_core.record.checkpoints import check_bound
from scadl_core.workflow.callbacks import WholeFiles
from scadl_core.workflow.interrupts import Stopped


class WorldEnvironment(ClusterEnvironment):
    """Tells Lightning who this process is, for every launcher alike.

    Left to itself, Lightning trains N independent copies under ``mpirun`` with ``devices=1``,
    raises IndexError with ``devices="auto"``, and believes a surrounding Slurm job before the MPI
    launcher that started it.

    Args:
        world: The processes of this run.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    creates_processes_externally = True
    main_address = "127.0.0.1"  # not used: the world has already met
    main_port = 0

    @staticmethod
    def detect() -> bool:
        """Never chosen by guessing."""
        return False

    def world_size(self) -> int:
        """How many processes there are."""
        return self.world.size

    def global_rank(self) -> int:
        """This process among all."""
        return self.world.rank

    def local_rank(self) -> int:
        """This process on its host."""
        return self.world.local_rank

    def node_rank(self) -> int:
        """This host."""
        return self.world.node_rank

    def set_world_size(self, size: int) -> None:
        """The world knows its size."""

    def set_global_rank(self, rank: int) -> None:
        """The world knows its ranks."""


class BoundedTrainer(Trainer):
    """Lightning's Trainer, which also says how exact its checkpoints are.

    Args:
        checkpoint_bound: None, or the relative error of the optimizer's state in checkpoints.
        plugins: As in Lightning.
        arguments: The others of :class:`lightning.Trainer`.

    Raises:
        ConfigError: A bound that is none.
    """

    def __init__(
        self, checkpoint_bound: float | None = None, plugins: Sequence[Any] = (), **arguments: Any
    ) -> None:
        files = WholeFiles(check_bound(checkpoint_bound))
        super().__init__(plugins=[*plugins, files], **arguments)


class GradientSolver:
    """Trains a task by backpropagation, data-parallel over the ranks of the world.

    Args:
        trainer: Makes Lightning's Trainer from the arguments given here; the ``trainer`` part of
            the configuration.
        world: The processes that share each batch.
        callbacks: What happens along the way, in order.
        loggers: Where curves go.
        folder: Lightning's own folder for whatever a logger or callback may write.
        progress_bar: Whether a terminal shows a moving bar.
        bucket: MiB of gradients that ranks exchange together, while the backward pass goes on.

    Raises:
        ConfigError: A bucket of no size, or arguments that Lightning refuses.
    """

    exchanges_gradients = True

    def __init__(
        self,
        trainer: Callable[..., Trainer],
        world: World,
        callbacks: Sequence[Callback],
        loggers: Sequence[Any],
        folder: Path,
        progress_bar: bool,
        bucket: float = 25.0,
    ) -> None:
        if not bucket > 0:
            raise ConfigError(f"solver.bucket: expected MiB above 0, got {bucket!r}")
        self.bucket = bucket
        quieten()
        # Before the Trainer is made, Lightning takes every MPI rank for rank 0.
        rank_zero_only.rank = world.rank  # type: ignore[attr-defined]
        try:
            self.trainer = trainer(
                **self.placement(world, trainer),
                plugins=[WorldEnvironment(world)],
                callbacks=list(callbacks),
                logger=list(loggers),
                default_root_dir=folder,
                enable_checkpointing=False,
                enable_progress_bar=progress_bar,
                enable_model_summary=False,
                use_distributed_sampler=False,
                num_sanity_val_steps=0,
            )
        except MisconfigurationException as error:
            raise ConfigError(f"trainer: {' '.join(str(error).split())}") from error
        # Lightning's own handler broadcasts inside the signal handler, which hangs when one rank of
        # several is
        # signalled; ours (scadl_core.workflow.interrupts) only sets a flag.
        self.trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]

    def placement(self, world: World, trainer: Any) -> dict[str, Any]:
        """Where it trains; see :func:`placement`."""
        return placement(world, trainer, self.bucket)

    def adopt(self, exchange: GradientExchange) -> None:
        """Sends what it sends as compressed as the ``comm`` part asks for; gradients, here, are
        its own.
        """

    @property
    def totals(self) -> dict[str, float]:
        """The solver's own account, for ``metrics.json``."""
        return {}

    def draw(self, folder: Path) -> dict[str, str]:
        """Draws what is to be seen of the solver itself.

        Args:
            folder: Of the figures.

        Returns:
            Captions by file name.
        """
        return {}

    def fit(
        self, task: LightningModule, training: Any, validation: Any, resume_from: Path | None
    ) -> None:
        """Trains to the end.

        Args:
            task: What is trained, in place.
            training: The loader of the training split.
            validation: The loader of the validation split.
            resume_from: A checkpoint to go on from.
        """
        with _of_this_rank():
            self.trainer.fit(task, training, validation, ckpt_path=resume_from, weights_only=True)

    def evaluate(self, task: LightningModule, loader: Any) -> None:
        """Runs the test steps of the task over a split; the task then has its scores.

        Args:
            task: What is evaluated.
            loader: The loader of the split.
        """
        with _of_this_rank():
            self.trainer.test(task, loader, verbose=False)


def quieten() -> None:
    """Leaves out what Lightning says about itself; its warnings about a user's choices stay."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings(
        "ignore", "`isinstance\\(treespec, LeafSpec\\)` is deprecated", FutureWarning
    )
    # The launch is ours to judge (scadl_core.comm.rank), on machines that have Slurm as well.
    warnings.filterwarnings("ignore", "The `srun` command is available on your system")
    # Scores are sums over all ranks when they are logged.
    warnings.filterwarnings("ignore", "It is recommended to use `self.log\\('.*sync_dist=True")
    # Our lines are counted over the whole run, and Checkpoints sets the loader to where it was.
    warnings.filterwarnings(
        "ignore", "The number of training batches .* is smaller than the logging"
    )
    warnings.filterwarnings(
        "ignore", "You're resuming from a checkpoint that ended before the epoch"
    )


@contextmanager
def _of_this_rank() -> Iterator[None]:
    """Marks a mistake met while ranks work on different samples: only this rank knows of it."""
    try:
        yield
    except Stopped:
        raise
    except SystemExit as leaving:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt from leaving
    except ScadlError as error:
        error.local = True
        raise


def placement(world: World, trainer: Any, bucket: float = 25.0) -> dict[str, Any]:
    """Devices, hosts and strategy for Lightning's Trainer, from how the processes were launched.

    Args:
        world: The processes of this run.
        trainer: The configured partial, whose own choices must not contradict the launch.
        bucket: MiB of gradients that are exchanged together.

    Raises:
        ConfigError: The configuration sets what the launch decides.
        LaunchError: A host has fewer GPUs than ranks.
    """
    given = getattr(trainer, "keywords", {})
    for key in ("devices", "num_nodes", "strategy", "plugins"):
        if key in given:
            raise ConfigError(
                f"trainer.{key} follows from how the processes are launched; remove it and start "
                "`mpirun -n 4 scadl ...`, `torchrun --nproc-per-node 4 -m scadl_core.cli ...` or "
                "`srun scadl ...`"
            )
    on_gpu = (
        given.get("accelerator", "auto") in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    )
    if on_gpu and torch.cuda.device_count() < world.local_size:
        raise LaunchError(
            f"{world.local_size} ranks on this host see {torch.cuda.device_count()} GPUs: start "
            "one rank a GPU and let "
            "every rank see all of them (with Slurm use --gpus-per-node, not --gpus-per-task), or "
            "set trainer.accelerator=cpu"
        )
    if world.size == 1:
        return {"devices": 1, "num_nodes": 1}
    # PyTorch's own number is given as none: only then is the first bucket a small one.
    strategy = DDPStrategy(bucket_cap_mb=None if bucket == 25 else bucket)
    return {"devices": world.local_size, "num_nodes": world.num_nodes, "strategy": strategy}
