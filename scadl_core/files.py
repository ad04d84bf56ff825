"""Finding files; and writing them whole or not at all, whatever kills the process that writes."""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from scadl_core.errors import ConfigError, DataError, PlaceError, ScadlError

DAMAGED = "it is cut short, damaged or of another format: fetch it again or leave it out"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What is the fault of the place that a person named, and not of the program.
PLACES = FULL | {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EEXIST),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}
PROBE_BYTES = 16 * 2**20  # more than any library writes at once
HANG_S = 600
MOST_REASON = 300  # characters of what a library says
Paths = str | Path | Iterable[str | Path]


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key by which ``map-2`` comes before ``map-10``."""
    return [(int(it) if it.isdecimal() else -1, it) for it in re.split(r"(\d+)", text)]


def find_files(
    paths: Paths, suffixes: Sequence[str], stores: Sequence[str] = (), key: str = "data.path"
) -> list[Path]:
    """The files of a file, a folder (and its subfolders), a pattern, or several; in natural order.

    Args:
        paths: What the user wrote.
        suffixes: The endings, in small letters, by which files of a folder are chosen.
        stores: Endings of folders that are taken as one file each, such as ``.zarr``.
        key: What the user wrote it for, to name in messages.

    Raises:
        DataError: One of them means no file.
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    files: set[Path] = set()
    for path in (Path(item).expanduser() for item in several):
        if path.is_file() or (path.is_dir() and path.suffix.lower() in stores):
            files.add(path)
        elif path.is_dir():
            found = set(_walk(path, suffixes, stores))
            if not found:
                ends = ", ".join((*suffixes, *stores))
                raise DataError(f"{key}: the folder {path} holds no file ending in {ends}")
            files |= found
        else:
            files |= _matches(path, stores, key)
    return sorted(files, key=lambda file: natural(str(file)))


def _walk(folder: Path, suffixes: Sequence[str], stores: Sequence[str]) -> Iterator[Path]:
    for item in folder.iterdir():
        if item.name.startswith("."):
            continue
        suffix = item.suffix.lower()
        if item.is_dir():
            if suffix in stores:
                yield item
            elif not item.is_symlink():  # might lead back here
                yield from _walk(item, suffixes, stores)
        elif suffix in suffixes:
            yield item


def _matches(pattern: Path, stores: Sequence[str], key: str) -> set[Path]:
    anchor = Path(pattern.anchor)  # a pattern has to be relative
    found = anchor.glob(str(pattern.relative_to(anchor)))
    files = {it for it in found if it.is_file() or it.suffix.lower() in stores}
    files = {file for file in files if not file.name.startswith(".")}
    if not files:
        folder = next(parent for parent in pattern.parents if parent.is_dir())
        there = ", ".join(sorted(item.name for item in folder.iterdir())[:8]) or "nothing"
        raise DataError(f"{key}: no file matches {pattern}; the folder {folder} holds {there}")
    return files


@contextmanager
def reading(place: Path | str, kind: str = "", advice: str = DAMAGED) -> Iterator[None]:
    """Whatever a broken file makes its reader raise becomes an error of one line that names it.

    Libraries raise anything over bytes that mean something else: KeyError, zlib.error, MemoryError.

    Args:
        place: The file, or a part of it.
        kind: What it was read as, such as ``NetCDF``.
        advice: What to do next.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        yield
    except ScadlError:
        raise
    except Exception as error:
        reason = " ".join(str(error.__cause__ or error).split()).removeprefix(f"{place}: ")
        reason = reason.replace(f": '{place}'", "").partition(". Consider ")[0]
        reason = reason[:MOST_REASON] or type(error).__name__
        as_kind = f" as {kind}" * bool(kind)
        raise DataError(f"{place}: cannot be read{as_kind} ({reason}); {advice}") from error


def try_in_child(place: Path | str, read: Callable[[], object]) -> None:
    """Tries a reader in a fork first: one whose library ends the process over damaged bytes.

    What the reader raises there it will raise here, too; that is not this function's matter.

    Args:
        place: The file, for the message.
        read: What is called; it must use no other threads.

    Raises:
        DataError: The child was ended by a signal, or came to no end within ten minutes.
    """
    with warnings.catch_warnings():  # Python 3.12 warns of threads, of which the child uses none
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # the parent says it
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(HANG_S)
            read()
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        reason = f"its reader was ended by {signal.Signals(-status).name}"
        raise DataError(f"{place}: cannot be read ({reason}); {DAMAGED}")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Gives a path beside the wanted one; on success syncs it to disk and renames it into place.

    Args:
        path: Where the file shall be. Its folder must exist. An older file there stays until the
            rename.

    Yields:
        A path in the same folder to write to. It keeps the suffix, which some writers go by.

    Raises:
        ConfigError: There is a folder, a device or the like in its place.
        PlaceError: It cannot be written there.
    """
    path = path.resolve()  # through links
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: there is something that is no file; choose another place")
    aside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        with writing(path):
            yield aside
            _sync(aside)
            aside.replace(path)
            _sync(path.parent)
    finally:
        with suppress(OSError):  # else it would hide why the file is not there
            aside.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What a disk that is full or may not be written makes a writer raise becomes one error.

    Libraries say it in their own words, or not at all; so the disk itself is asked.

    Raises:
        PlaceError: The path cannot be written.
    """
    try:
        yield
    except ScadlError:
        raise
    except Exception as error:
        cause = error if isinstance(error, OSError) else _refused(path.parent)
        if cause is None or cause.errno not in PLACES:
            raise
        raise unwritable(path, cause) from error


def unwritable(path: Path | str, error: OSError) -> PlaceError:
    """The error to raise where a path cannot be written."""
    advice = "free some space, or " * (error.errno in FULL)
    return PlaceError(f"{path}: {error.strerror}; {advice}choose a place that can be written")


def _refused(folder: Path) -> OSError | None:
    """Why nothing more can be written in a folder; None: something can."""
    probe = folder / f".{os.getpid()}.probe"
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        return error
    finally:
        with suppress(OSError):
            probe.unlink()
    return None


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """Gives an empty folder beside the wanted one; on success renames it into place.

    Args:
        path: Where the folder shall be. Folders above it are made.

    Yields:
        A folder to write to. It is dropped where another process was faster, and wrote the same.

    Raises:
        PlaceError: It cannot be written there.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    scratch_of = partial(tempfile.TemporaryDirectory, prefix=f".{path.name}.", dir=path.parent)
    with writing(path), scratch_of() as scratch:
        aside = Path(scratch) / path.name
        aside.mkdir()
        yield aside
        try:
            aside.rename(path)
        except OSError:
            if not path.is_dir():
                raise


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    Args:
        path: Where to.
        text: Its content, stored as UTF-8.
    """
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON, whole or not at all.

    Args:
        path: Where to.
        value: Anything JSON can hold.
    """
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
