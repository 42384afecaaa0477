"""What the two shells do their own way: running the stages of an epoch, and publishing its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from midstream.engine.program import Program
from midstream.protocol.report import Report
from midstream.state.manifest import OutputFile


class EpochExecution(Protocol):
    """One epoch as a shell runs it: it has the rows that have arrived."""

    def run(self, program: Program) -> Report:
        """Run the stages of an epoch and add up what their partitions report."""

    def prepare(self, program: Program, report: Report) -> None:
        """Before the commit: hand results to a receiver that is not a folder of files. May be repeated."""


class Publisher(Protocol):
    """Where a shell's results go. It needs no rows: a start publishes what the last run has committed."""

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """After the commit: make results visible. May be repeated, always with the same outputs."""

    def sweep(self) -> None:
        """Remove what abandoned attempts have staged; all that was committed is published by now.

        What drivers with a later lease have staged is not touched.
        """
