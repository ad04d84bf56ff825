"""The run folder: one for every run, never shared, made by rank 0.

config.yaml        the resolved configuration       metrics.json   the final numbers, last
provenance.json    code, versions, data, command    metrics.csv    one row an epoch
checkpoints/       last.ckpt, best.ckpt             tensorboard/   curves
figures/  predictions/  evaluations/                report.html    all of it on one page
logs/              warnings, errors of each rank    heartbeats/    signs of life, while it goes on
"""

from __future__ import annotations

import fcntl
import json
import secrets
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from scadl_core.errors import RunError
from scadl_core.files import write_json, write_text
from scadl_core.record.checkpoints import read_checkpoint

_PARTS = ("checkpoints", "figures", "predictions")
# What the configuration of a run and the identity of a checkpoint have in any version.
_SECTIONS = {"data", "loader", "model", "optimizer", "paths", "run", "seed", "task", "trainer"}
_IDENTITY = {"app", "facts", "provenance", "step"}
# What may differ between a run and its continuation.
_NOT_THE_RUN = (
    "resume",
    "run",
    "paths",
    "input",
    "output",
    "checkpoint",
    "split",
    "format",
    "build",
)


class RunFolder:
    """The paths of one run and their state.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.provenance = path / "provenance.json"
        self.metrics = path / "metrics.json"
        self.history = path / "metrics.csv"
        self.report = path / "report.html"
        self.checkpoints = path / "checkpoints"
        self.figures = path / "figures"
        self.predictions = path / "predictions"
        self.heartbeats = path / "heartbeats"
        self.logs = path / "logs"
        self._lock: IO[str] | None = None

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.is_file()

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end."""
        return self.metrics.is_file()

    @property
    def last_checkpoint(self) -> Path | None:
        """Where the run was saved last, if it was."""
        path = self.checkpoints / "last.ckpt"
        return path if path.is_file() else None

    def open(self, config: DictConfig, resume: bool) -> None:
        """Makes the folder for a new run, or takes a run up again; locks it until :meth:`close`.

        Args:
            config: The resolved configuration of the run.
            resume: Whether a run may be continued here.

        Raises:
            RunError: The folder cannot be written, is in use, or holds a run that must stay as it
                is.
        """
        try:
            for part in _PARTS:
                (self.path / part).mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("a")
        except OSError as error:
            raise RunError(
                f"run folder {self.path}: cannot be written ({error.strerror}); set run.dir or "
                "paths.runs to a folder that you can write to"
            ) from None
        try:
            self._take_lock()
            self._check_claim(config, resume)
        except RunError:
            self._lock.close()
            raise

    def close(self) -> None:
        """Gives the lock back; where no run was begun, leaves no trace."""
        if self._lock is not None:
            self._lock.close()
        if self.path.is_dir() and not self.exists:
            (self.path / ".lock").unlink(missing_ok=True)
            for folder in (*(self.path / part for part in _PARTS), self.path):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()

    def begin(self, config: DictConfig, provenance: dict[str, Any]) -> None:
        """Writes what the run is and where it comes from; a resumed run adds itself under
        ``"resumed"``.

        Args:
            config: The resolved configuration.
            provenance: What goes into ``provenance.json``.

        Raises:
            RunError: The data have changed since the run was begun.
        """
        if self.provenance.is_file():
            first = self.load_provenance()
            old, new = first["data"], provenance["data"]
            changed = sorted(
                path for path in old.keys() | new.keys() if old.get(path) != new.get(path)
            )
            if changed:
                raise RunError(
                    f"run folder {self.path}: {changed[0]} has changed since this run was begun; "
                    "start a new run"
                )
            again = {name: value for name, value in provenance.items() if name != "data"}
            provenance = {**first, "resumed": [*first.get("resumed", []), again]}
        write_json(self.provenance, provenance)
        if not self.exists:
            write_text(self.config, OmegaConf.to_yaml(config))

    def _check_claim(self, config: DictConfig, resume: bool) -> None:
        if not self.exists:
            return
        if not resume:
            raise RunError(
                f"run folder {self.path} already holds a run; choose another run.dir, leave it out "
                "for a new folder, or continue that run with resume=auto"
            )
        if changed := differences(self.load_config(), config):
            raise RunError(
                f"run folder {self.path} holds a run with another {changed[0]}; resume it as it "
                "was, or choose another run.dir"
            )

    def load_config(self) -> DictConfig:
        """The stored configuration.

        Raises:
            RunError: There is none, or it cannot be read.
        """
        try:
            text = self.config.read_text(encoding="utf-8")
            config = OmegaConf.create(text)
        except FileNotFoundError:
            raise RunError(
                f"run.dir={self.path}: not a run folder (it has no config.yaml)"
            ) from None
        except (OSError, YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
            raise RunError(
                f"{self.config}: cannot be read ({str(error).splitlines()[0]})"
            ) from None
        if not isinstance(config, DictConfig) or not isinstance(config.get("app"), str):
            raise RunError(f"{self.config}: not the configuration of a run (it names no app)")
        lacking = sorted(_SECTIONS - config.keys())
        if lacking or "${" in text:  # what was stored was whole and resolved
            reason = f"it has no {lacking[0]}" if lacking else "it holds a ${...}"
            raise RunError(f"{self.config}: not the configuration of a run ({reason})")
        # Trust in foreign packages is given by who runs this, not by the folder.
        config.build = {"allow": []}
        return config

    def load_checkpoint(self, name: str, app: str) -> dict[str, Any]:
        """Loads a checkpoint without executing anything in it.

        Args:
            name: ``"best"``, ``"last"`` or a path.
            app: The pipeline it has to be of.

        Raises:
            RunError: It is absent, broken, or of another pipeline.
        """
        path = self.checkpoints / f"{name}.ckpt" if name in ("best", "last") else Path(name)
        try:
            checkpoint = read_checkpoint(path)
        except FileNotFoundError:
            raise RunError(
                f"no checkpoint {path}; train to the end, or choose checkpoint=best, "
                "checkpoint=last or a path"
            ) from None
        except Exception as error:  # whatever a broken file makes the reader raise
            raise RunError(
                f"checkpoint {path}: cannot be read, it is broken or not a ScaDL checkpoint "
                f"({type(error).__name__})"
            ) from None
        identity = checkpoint.get("scadl") if isinstance(checkpoint, dict) else None
        if not isinstance(identity, dict) or not identity.keys() >= _IDENTITY:
            raise RunError(
                f"checkpoint {path}: not a ScaDL checkpoint; give one that `scadl train {app}` "
                "wrote"
            )
        if identity["app"] != app:
            raise RunError(
                f"checkpoint {path} is of the pipeline {identity['app']!r}, not of {app!r}"
            )
        return dict(checkpoint)

    def load_metrics(self) -> dict[str, float]:
        """The final numbers of a complete run."""
        if not self.is_complete:
            raise RunError(
                f"run folder {self.path}: the run is not complete; continue it with resume=auto"
            )
        return _read_json(self.metrics)

    def load_provenance(self) -> dict[str, Any]:
        """Where the run comes from.

        Raises:
            RunError: The file is absent or broken.
        """
        return _read_json(self.provenance)

    def _take_lock(self) -> None:
        assert self._lock is not None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"run folder {self.path} is in use by another process; wait for it or choose "
                "another run.dir"
            ) from None
        except OSError:
            pass  # a file system without locks; the refusal of existing runs still holds


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RunError(
            f"{path}: cannot be read ({type(error).__name__}); was it cut off?"
        ) from None


def new_name() -> str:
    """A name for a run folder: the time, and random digits since several may start within a
    second.
    """
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def differences(stored: DictConfig, config: DictConfig) -> list[str]:
    """The keys in which two configurations describe different runs, with both values."""
    one, other = flat(stored), flat(config)
    keys = sorted(one.keys() | other.keys())
    return [
        f"{k} ({one.get(k)!r}, now {other.get(k)!r})" for k in keys if one.get(k) != other.get(k)
    ]


def unfinished(runs: Path, config: DictConfig) -> Path | None:
    """The newest run folder that was begun with the same configuration and not completed."""
    for path in sorted(runs.glob("*"), reverse=True):
        folder = RunFolder(path)
        try:
            open_run = folder.exists and not folder.is_complete
            if open_run and not differences(folder.load_config(), config):
                return path
        except RunError:
            continue  # a broken folder is no reason to refuse another run
    return None


def flat(config: DictConfig) -> dict[str, Any]:
    """What decides a run, by full key: paths, where it lies, and what is read or written later are
    left out.
    """
    container = OmegaConf.to_container(config)
    assert isinstance(container, dict)
    found: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                walk(f"{prefix}.{name}", inner)
        else:
            found[prefix] = value

    for name, value in container.items():
        if name not in _NOT_THE_RUN:
            walk(str(name), value)
    return found
