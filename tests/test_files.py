"""Files that are whole or absent: killed and failing writers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from scadl_core.errors import ConfigError, DataError
from scadl_core.files import (
    folder_aside,
    reading,
    try_in_child,
    write_json,
    write_text,
    written_aside,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_new_content_replaces_the_old(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")
    write_text(path, "Größe 1")
    assert path.read_bytes() == "Größe 1".encode()
    assert names(tmp_path) == ["notes.txt"]


def test_json_comes_back(tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", {"test/iou": 0.1, "where": tmp_path})
    assert json.loads((tmp_path / "m.json").read_text()) == {
        "test/iou": 0.1,
        "where": str(tmp_path),
    }


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_text("old")
    with pytest.raises(RuntimeError), written_aside(path) as aside:
        assert (aside.parent, aside.suffix) == (tmp_path, ".ckpt")
        aside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["last.ckpt"]


def test_a_kill_before_the_rename_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_text("old")
    child = os.fork()
    if child == 0:
        with written_aside(path) as aside:
            aside.write_text("new, and whole")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text(path, "new")  # what the killed process left aside is in nobody's way
    assert path.read_text() == "new"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ConfigError, match="there is something that is no file"):
            write_text(path, "x")
    assert names(tmp_path) == ["pipe"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    wanted = tmp_path / "deep" / "set"
    with pytest.raises(RuntimeError), folder_aside(wanted) as aside:
        (aside / "half").touch()
        raise RuntimeError
    assert list((tmp_path / "deep").iterdir()) == []
    for content in ("first", "second"):  # whoever is later gives way
        with folder_aside(wanted) as aside:
            (aside / content).touch()
    assert [item.name for item in wanted.iterdir()] == ["first"]
    assert list((tmp_path / "deep").iterdir()) == [wanted]


def test_a_reader_that_ends_its_process_is_named(tmp_path: Path) -> None:
    file, seen = tmp_path / "data.mat", tmp_path / "seen"
    with pytest.raises(DataError, match=r"data\.mat: cannot be read .* ended by SIGSEGV"):
        try_in_child(file, lambda: os.kill(os.getpid(), signal.SIGSEGV))
    try_in_child(file, seen.touch)
    assert seen.exists()
    try_in_child(file, lambda: int("none"))  # for the parent to meet


def test_a_reader_s_own_error_names_the_file(tmp_path: Path) -> None:
    said = r"x\.nc: cannot be read as NetCDF \(KeyError\)"
    with pytest.raises(DataError, match=said), reading(tmp_path / "x.nc", "NetCDF"):
        raise KeyError
    with pytest.raises(ConfigError, match=r"^as it was$"), reading("x.nc"):
        raise ConfigError("as it was")
