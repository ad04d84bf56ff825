"""What a finished run says of events: its scores, its tables and its report agree."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest


def test_scores_by_objects_agree_with_the_tables(trained: Path) -> None:
    metrics = json.loads((trained / "metrics.json").read_text())
    assert 0 <= metrics["test/ece"] <= 1
    tables = {}
    for name in ("labelled", "predicted"):
        text = (trained / "figures" / f"events_{name}.csv").read_text()
        tables[name] = [row["class"] for row in csv.DictReader(text.splitlines())]
    checked = 0
    for event in ("tropical_cyclone", "atmospheric_river"):
        truth, said = (tables[name].count(event) for name in ("labelled", "predicted"))
        assert truth > 0
        hits = metrics[f"test/pod_{event}"] * truth
        assert hits == pytest.approx(round(hits), abs=1e-9)
        if said:
            assert (1 - metrics[f"test/far_{event}"]) * said == pytest.approx(hits, abs=1e-9)
        checked += said
    assert checked == len(tables["predicted"])
    assert not [name for name in metrics if "pod" in name and not name.startswith("test/")]


def test_the_report_links_the_tables(trained: Path) -> None:
    page = (trained / "report.html").read_text(encoding="utf-8")
    for name in ("figures/events_labelled.csv", "figures/events_predicted.csv"):
        assert f'<a href="{name}">' in page
        assert (trained / name).is_file()
