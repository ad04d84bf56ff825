"""The quick study's trainings run side by side, unless one says how they are to run."""

from __future__ import annotations

import pytest

from scadl_core.cli import study
from scadl_core.cli.arguments import read_words


@pytest.mark.parametrize(
    ("words", "launcher"),
    [
        (["climate"], ["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"]),
        (["climate", "hydra/launcher=basic"], []),
        (["climate", "hydra.launcher.n_jobs=1"], []),
    ],
)
def test_launcher_of_the_quick_study(words: list[str], launcher: list[str]) -> None:
    assert study._side_by_side(read_words("study memory", words)) == launcher
