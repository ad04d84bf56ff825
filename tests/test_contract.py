"""The one contract of all pipelines. A new folder below apps/ is tested by this file as it is."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime  # noqa: F401  # ours are never skipped for want of it
import pytest

pytest.register_assert_rewrite("scadl_core.cli.contract")
from scadl_core.cli.contract import Contract, apps_in  # noqa: E402

APPS = apps_in(Path(__file__).resolve().parents[1])
PROMISED = {
    "climate": ("iou_tropical_cyclone", "iou_atmospheric_river"),
    "hep": ("auc_macro", "accuracy"),
    "remote_sensing": ("psnr", "sam"),
    "graphs": ("accuracy",),
}


@pytest.mark.parametrize("app", APPS, scope="class")
class TestContract(Contract):
    """Every law is a test; and the names that the design promises."""

    def test_scores_have_the_promised_names(self, app: str, run: Path) -> None:
        metrics = json.loads((run / "metrics.json").read_text())
        names = {f"{of}/{it}" for it in PROMISED.get(app, ()) for of in ("test", "baseline")}
        assert names <= metrics.keys()
