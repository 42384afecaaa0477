"""What an epoch took, and what it did meanwhile: what the next epoch's intent has of its report.

Times enter by the intent, like everything that is not the same in every attempt. So an epoch that runs again
commits the same manifest, however long it takes this time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from midstream.adapt.calibrate import RECEIVES, RESULTS, STEPS
from midstream.adapt.cost import counted_cost
from midstream.engine.program import Program
from midstream.protocol.report import Report
from midstream.state.costs import KINDS, Measurement


def measurements_of(program: Program, report: Report) -> tuple[Measurement, ...]:
    """What can be learned from an epoch; nothing if no time was measured, or if it moved states.

    Moving states is not part of any step, so it was not measured, but its rows are among those sent.
    """
    step = program.migration_step
    if not report.cpu_seconds or (step is not None and step.moves):
        return ()
    return tuple(_measurements(report))


def _measurements(report: Report) -> Iterator[Measurement]:
    done = counted_cost(report.work)
    work = {kind: getattr(done, kind) for kind in KINDS}
    joined = {**work, RESULTS: float(report.results), STEPS: float(report.steps)}
    yield Measurement(part="join", seconds=report.cpu_seconds.get("join", 0.0), counts=joined)
    if "send" in report.cpu_seconds:
        passed_on = {"sent_rows": float(report.received_rows), RECEIVES: float(report.receives)}
        yield Measurement(part="send", seconds=report.cpu_seconds["send"], counts=passed_on)
    for (_, end), (begin, _) in pairwise(time for _, time in sorted(report.stage_times.items())):
        # The clocks of two machines may differ by more than that.
        yield Measurement(part="stage", seconds=max(begin - end, 0.0), counts={"stages": 1.0})
