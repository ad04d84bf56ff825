"""A data report on a terminal shows names and units as they are in the files."""

from __future__ import annotations

import io

from rich.console import Console

from scadl_core.record.datareport import DataReport, Table


def test_what_looks_like_markup_is_printed_as_it_is() -> None:
    table = Table("[bold]title", ["[name]"], [["[m s-1]"], ["[/red]"]])
    report = DataReport("[b]maps[/b]", {"[grid]": "[red]"}, [table], ["[/odd]"])
    console = Console(file=io.StringIO(), width=100)
    report.print(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for shown in ("[bold]title", "[name]", "[m s-1]", "[/red]", "[b]maps[/b]", "[grid]: [red]"):
        assert shown in text
    assert "warning: [/odd]" in text
