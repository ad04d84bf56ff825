from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from scadl_core.record.plots import confusion_matrix, learning_curves


def png_size(path: Path) -> tuple[int, int]:
    """Width and height from the header of a PNG file."""
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", header[16:])
    return width, height


@pytest.mark.parametrize(("scores", "rows"), [(1, 1), (3, 1), (4, 2)])
def test_learning_curves_wrap_and_skip_what_is_missing(
    tmp_path: Path, scores: int, rows: int
) -> None:
    names = [f"val/iou_{n}" for n in range(scores - 1)]
    lines = [",".join(["epoch", "step", "train/loss", *names, "val/score"])]
    lines += [",".join([str(e), str(e), "1.5", *["" for _ in names], "0.5"]) for e in (1, 2)]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    learning_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
    width, height = png_size(tmp_path / "curves.png")
    assert (round(width / 110 / 3.6), round(height / 110 / 2.7)) == (3, rows)


def test_a_class_that_does_not_occur_has_no_shares(tmp_path: Path) -> None:
    confusion_matrix(np.array([[3.0, 1.0], [0.0, 0.0]]), ["a", "b_c"], tmp_path / "matrix.png")
    assert png_size(tmp_path / "matrix.png")[0] > 100
