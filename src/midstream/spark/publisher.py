"""Publishing: committed results and late rows become visible to readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from midstream.errors import CheckpointError
from midstream.spark.sinks import Sink
from midstream.state.manifest import OutputFile
from midstream.storage.output_table import OutputTable


@dataclass(frozen=True)
class SparkPublisher:
    """Publishes the results of a query, and its late rows if they are kept."""

    sink: Sink
    late_table: OutputTable | None

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """Make results and late rows visible."""
        self.sink.publish(epoch, results_among(outputs))
        late = [output for output in outputs if output.table == "late"]
        if self.late_table is not None:
            self.late_table.publish(late)
        elif late:
            raise CheckpointError(
                "late rows of a committed epoch must be published",
                got="no option lateRows",
                hint="start the query once more with the lateRows that it had",
            )

    def sweep(self) -> None:
        """Remove staged files; those of a committed epoch have been published by now."""
        self.sink.table.sweep()
        if self.late_table is not None:
            self.late_table.sweep()


def results_among(outputs: Iterable[OutputFile]) -> list[OutputFile]:
    """The files of results."""
    return [output for output in outputs if output.table == "results"]
