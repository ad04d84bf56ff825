"""The report page: right numbers, nothing from outside, nothing executed."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from scadl_core.record.datareport import DataReport, Table
from scadl_core.record.report import (
    accounts,
    cards,
    lower_is_better,
    readable_bytes,
    readable_seconds,
    scorecard,
    summary,
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
        self.ids: list[str] = []
        self.alts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset")
        ]

        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.alts += [value or "" for name, value in attrs if tag == "img" and name == "alt"]

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
    outside = [it for it in page.addresses if not it.startswith("#")]
    assert outside == ["data:,", f"data:image/png;base64,{picture}"]  # the empty icon, the figure
    assert not {"script", "iframe", "object"} & set(page.tags)
    assert "@import" not in text
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


def test_the_contents_lead_to_every_part(tmp_path: Path) -> None:
    page = Page(write(tmp_path))
    named = [it[1:] for it in page.addresses if it.startswith("#")]
    assert named == page.ids
    assert page.tags.count("h2") == len(named) == 8
    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("nav") == 1
    assert page.alts == [HOSTILE]
    assert page.tags.count("img") == 1


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_has_the_contrast_of_wcag_aa(tmp_path: Path) -> None:
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", write(tmp_path)))
    texts = colours.keys() - {"paper", "line", "code"}
    assert texts >= {"ink", "soft", "good", "bad", "warning", "link"}
    for ground in ("paper", "code"):
        for text in texts:
            light, dark = sorted(map(luminance, (colours[ground], colours[text])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


@pytest.mark.parametrize("name", ["loss", "test/sam", "ece", "mae_P_seconds", "mass_js_top"])
def test_of_errors_less_is_more(name: str) -> None:
    assert lower_is_better(name)


@pytest.mark.parametrize("name", ["iou", "sample_f1", "psnr", "accuracy", "rejection_top_at_50"])
def test_of_other_scores_more_is(name: str) -> None:
    assert not lower_is_better(name)


def test_the_summary_says_what_was_trained_and_how_good_it_is() -> None:
    config = {"model": {"_target_": "apps.climate.model.UNet"}}
    ranks = {"ranks": [{"device": "CPU (x86_64)"}] * 2}
    said = summary("climate", config, METRICS, "12 maps", ranks)
    assert said == [
        "A UNet of the pipeline climate was trained for 3 epochs in 2 min 05 s on 2 x "
        "CPU (x86_64).",
        "Data: 12 maps.",
        "On data that it has not seen it is at least as good as the simple rule of the field in "
        "the score (iou: 0.75 against 0.5).",
    ]
    worse = {**METRICS, "baseline/iou": 0.8, "baseline/loss": 1.0,
             "memory/saved_bytes_uncompressed": 15360}  # fmt: skip
    assert summary("climate", config, worse, "12 maps", {})[2:] == [
        "On data that it has not seen it is not as good as the simple rule of the field in 2 of 2 "
        "scores (iou: 0.75 against 0.8).",
        "Activations were kept in 10 times less memory.",
    ]
    assert ("train/seconds", "2 min 05 s") in accounts(METRICS).rows
    assert ("memory/saved_bytes", "1.5 KiB") in accounts(METRICS).rows
