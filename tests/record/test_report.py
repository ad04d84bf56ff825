"""The report page: right numbers, nothing from outside, nothing executed."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from scadl_core.record.datareport import DataReport, Table
from scadl_core.record.report import (
    cards,
    readable_bytes,
    readable_seconds,
    scorecard,
    write_report,
)
from scadl_core.record.runfolder import RunFolder

HOSTILE = '<script>alert("x")</script>&{{ 7*7 }}.nc'
METRICS = {
    "test/iou": 0.75,
    "test/loss": 1.5,
    "baseline/iou": 0.5,
    "train/seconds": 125.2,
    "train/epochs": 3,
    "memory/peak_bytes": 3 * 2**30,
    "memory/saved_bytes": 1536,
    "comm/sent_bytes": 0,
}


class Page(HTMLParser):
    """Collects tags, addresses and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset")
        ]

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def write(tmp_path: Path, files: int = 1) -> str:
    folder = RunFolder(tmp_path / "run")
    folder.figures.mkdir(parents=True)
    (folder.figures / "a.png").write_bytes(b"not really a picture")
    data = DataReport(
        HOSTILE, {"files": HOSTILE}, [Table(HOSTILE, ["name"], [[HOSTILE]])], [HOSTILE]
    )
    provenance: dict[str, Any] = {
        "time": "now",
        "data": {f"{n}{HOSTILE}": "11" for n in range(files)},
    }
    config = OmegaConf.create({"app": "climate", "data": {"path": HOSTILE.replace("{", "(")}})
    figures = {folder.figures / "a.png": HOSTILE}
    text = OmegaConf.to_yaml(config)
    write_report(folder.report, "climate", text, METRICS, data, figures, provenance)
    return folder.report.read_text(encoding="utf-8")


def test_names_out_of_files_are_shown_and_not_executed(tmp_path: Path) -> None:
    page = Page(write(tmp_path))
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) >= 6  # title, fact, table, cell, warning, caption
    assert "49" not in page.text  # Jinja does not see it


def test_the_page_stands_by_itself(tmp_path: Path) -> None:
    text = write(tmp_path)
    page = Page(text)
    picture = base64.b64encode(b"not really a picture").decode()
    assert page.addresses == [f"data:image/png;base64,{picture}"]
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text


def test_the_numbers_are_those_of_the_metrics(tmp_path: Path) -> None:
    text = Page(write(tmp_path)).text.split()
    for shown in ("0.7500", "0.5000", "+0.2500", "1.5000"):
        assert shown in text
    assert "2 min 05 s" in " ".join(text)


def test_of_many_files_the_first_are_listed(tmp_path: Path) -> None:
    text = Page(write(tmp_path, files=25)).text
    assert "5 more in provenance.json" in text
    assert "19" + HOSTILE.replace('"', '\\"') in text
    assert "20" + HOSTILE.replace('"', '\\"') not in text


def test_scorecard_and_cards() -> None:
    assert scorecard(METRICS) == [("iou", 0.75, 0.5), ("loss", 1.5, None)]
    assert cards(METRICS) == [
        ("training time", "2 min 05 s"),
        ("epochs", "3"),
        ("peak memory", "3.0 GiB"),
        ("activations kept a step", "1.5 KiB"),
        ("bytes sent", "0 B"),
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1.5 * 2**20, "1.5 MiB"),
        (2**40, "1.0 TiB"),
        (2**51, "2048.0 TiB"),
    ],
)
def test_bytes_in_a_persons_units(count: float, text: str) -> None:
    assert readable_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3600 * 26 + 61, "26 h 01 min"),
    ],
)
def test_seconds_in_a_persons_units(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text
