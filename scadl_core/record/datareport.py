"""What was found in a user's files, in words and tables: printed by ``scadl check``, kept in every
run's report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """A titled table of text cells.

    Attributes:
        title: What the rows are.
        columns: The names of the columns.
        rows: One tuple of cells a row, as long as ``columns``.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class DataReport:
    """Facts, tables and warnings about one data set.

    Attributes:
        title: The data set in a few words.
        facts: Short answers by name, such as ``{"grid": "96 x 144, global"}``.
        tables: Longer matter, such as a row a channel.
        warnings: What a reader should know before trusting a result.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def print(self, console: Console) -> None:
        """Writes the report to a terminal or a log.

        Args:
            console: Where to write.
        """
        console.print(self.title, style="bold", highlight=False, markup=False)
        for name, value in self.facts.items():
            console.print(f"  {name}: {value}", highlight=False, markup=False)
        for table in self.tables:
            # Units and names out of files may look like rich's markup: [m s-1].
            columns = map(escape, table.columns)
            rich_table = RichTable(*columns, title=escape(table.title), title_justify="left")
            for row in table.rows:
                rich_table.add_row(*map(escape, row))
            console.print(rich_table)
        for warning in self.warnings:
            console.print(f"  warning: {warning}", style="yellow", highlight=False, markup=False)
