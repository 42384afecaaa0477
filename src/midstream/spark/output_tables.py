"""The output tables of a run of a query: results and late rows."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.errors import OptionError
from midstream.storage.checkpoint_folder import explain_unusable
from midstream.storage.output_table import OutputTable


@dataclass(frozen=True, kw_only=True)
class QueryTables:
    """Opens tables for one run of a query."""

    query: str
    """The short id of the query, which its files have in their names."""
    lease: int
    checkpoint: str

    def results_in(self, folder: str) -> OutputTable:
        """Results in a folder of the user's, with the usual permissions."""
        table = OutputTable(table="results", path=folder, query=self.query, lease=self.lease)
        with explain_unusable("path", folder, OptionError):
            return table.identified()

    def results_in_checkpoint(self) -> OutputTable:
        """Results in the checkpoint, which only its owner can read."""
        path = f"{self.checkpoint}/results"
        table = OutputTable(table="results", path=path, query=self.query, lease=self.lease, private=True)
        return table.identified()

    def late_rows_in(self, folder: str) -> OutputTable:
        """Late rows in a folder of the user's."""
        table = OutputTable(table="late", path=folder, query=self.query, lease=self.lease)
        with explain_unusable("lateRows", folder, OptionError):
            return table.identified()
