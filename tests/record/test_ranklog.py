"""What a rank says can be read afterwards, and is still shown."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from scadl_core.comm import World
from scadl_core.record.ranklog import RankLog


def test_warnings_messages_and_errors(tmp_path: Path) -> None:
    before = warnings.showwarning, list(logging.getLogger().handlers)
    with (
        pytest.raises(ValueError),
        pytest.warns(UserWarning, match="careful"),  # still shown
        RankLog(tmp_path, World(1, 2)) as log,
    ):
        warnings.showwarning("be careful", UserWarning, "model.py", 12)
        logging.getLogger("library").warning("odd values")
        log.say("in between")
        raise ValueError("no such value")
    assert (warnings.showwarning, list(logging.getLogger().handlers)) == before
    text = (tmp_path / "rank-1.log").read_text()
    expected = [
        "rank 1 of 2, process ",
        "UserWarning: be careful (model.py:12)",
        "WARNING odd values",
        "in between",
        "Traceback",
        "ValueError: no such value",
    ]
    places = [text.index(it) for it in expected]
    assert places == sorted(places)


def test_the_stack_of_a_crash(tmp_path: Path) -> None:
    program = (
        "import ctypes, sys; from pathlib import Path; from scadl_core.comm import World\n"
        "from scadl_core.record.ranklog import RankLog\n"
        "with RankLog(Path(sys.argv[1]), World()):\n"
        "    import logging; logging.getLogger('x').warning('still shown')\n"
        "    ctypes.string_at(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode < 0 and "still shown" in done.stderr
    text = (tmp_path / "rank-0.log").read_text()
    assert "Fatal Python error: Segmentation fault" in text and "string_at" in text


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        with RankLog(tmp_path, World()):
            pass
    assert (tmp_path / "rank-0.log").read_text().count("rank 0 of 1") == 2
