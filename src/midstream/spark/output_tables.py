"""The output tables of a run of a query: results and late rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    compression: str
    """The codec of their files."""

    def results_in(self, folder: str) -> OutputTable:
        """Results in a folder of the user's, with the usual permissions."""
        with explain_unusable("path", folder, OptionError):
            return self._open("results", folder)

    def results_in_checkpoint(self) -> OutputTable:
        """Results in the checkpoint, which only its owner can read."""
        return self._open("results", f"{self.checkpoint}/results", private=True)

    def late_rows_in(self, folder: str) -> OutputTable:
        """Late rows in a folder of the user's."""
        with explain_unusable("lateRows", folder, OptionError):
            return self._open("late", folder)

    def _open(self, table: Literal["results", "late"], path: str, *, private: bool = False) -> OutputTable:
        return OutputTable(
            table=table,
            path=path,
            query=self.query,
            private=private,
            lease=self.lease,
            compression=self.compression,
        ).identified()
