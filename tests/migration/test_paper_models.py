"""The papers' models, compared with counted runs: comparisons of nested loops, inserted rows, event time.

A time of the models is a count if joining a pair takes 1 and inserting 0, or the other way round. Slices are
not merged here: then rows are purged as the models have it, when they expire, and not with the largest slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from midstream.engine import merge_slices
from midstream.engine.work import WorkCounts
from midstream.migration.paper_models import (
    BlackBoxModel,
    WindowJoin,
    ghm_duration,
    ghm_phases,
    gms_duration,
    gms_spike_length,
    gpt_cpu,
    gpt_duration,
    match_time,
    move_time,
    moving_state_time,
    new_operator_time,
    new_output_rate,
    old_operator_time,
    parallel_track_time,
    recompute_time,
)
from midstream.plan.handover import PlanSide
from midstream.plan.state_id import StateId
from midstream.testing.random_streams import SECOND
from tests.helpers import small_query
from tests.recorded_run import RecordedRun

W = 24
"""The window, in seconds; each epoch has a second of rows."""
KEYS = 40
SIGMA = 1 / KEYS
WARM_UP = W + W // 2
WITHIN = 0.25


def arrivals(rates: dict[str, int], epochs: range, seed: int = 0) -> Iterator[dict[str, pa.Table]]:
    """Rows of each epoch, at random times of its second and with random keys."""
    for number in epochs:
        random = np.random.default_rng((seed, number))
        tables = {}
        for name, count in rates.items():
            times = np.sort(random.integers(number * SECOND, (number + 1) * SECOND, count))
            keys = random.integers(0, KEYS, count)
            columns = {"t": times.astype("datetime64[us]"), "k": keys, "j": keys, "v": keys.astype(str)}
            tables[name] = pa.table(columns).cast(_SCHEMA)
        yield tables


_SCHEMA = pa.schema(
    [("t", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("j", pa.int64()), ("v", pa.string())]
)


def clique(names: str):
    on = [f"{a}.k = {b}.k" for a, b in pairwise(names)]
    return small_query(on, names, default_window=W * SECOND, select=[f"{names[0]}.v"])


def warm(rates: dict[str, int], plan: str) -> RecordedRun:
    """A query that has run for more than a window."""
    return RecordedRun(clique("".join(rates)), plan).process(arrivals(rates, range(WARM_UP)))


def after(rates: dict[str, int], epochs: int) -> Iterator[dict[str, pa.Table]]:
    return arrivals(rates, range(WARM_UP, WARM_UP + epochs))


@contextmanager
def unmerged() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_slices, "choose_merge", lambda *_: ())
        yield


@pytest.fixture(autouse=True)
def _unmerged():
    with unmerged():
        yield


def join(lambda_a: float, lambda_b: float, *, counts: str) -> WindowJoin:
    """A join whose times are numbers of comparisons, or of inserted rows."""
    t_j, t_s = {"comparisons": (1.0, 0.0), "inserted rows": (0.0, 1.0)}[counts]
    return WindowJoin(lambda_a=lambda_a, lambda_b=lambda_b, sigma_ab=SIGMA, w=W, t_j=t_j, t_s=t_s)


def total(run: RecordedRun, side: PlanSide) -> WorkCounts:
    """The work of one plan in all epochs of the migration."""
    return sum((work.get(side, WorkCounts()) for work in run.work[WARM_UP:]), WorkCounts())


def test_moving_state_takes_as_long_as_its_equations_say():
    """Equations 1 to 3, for the plans of the paper: {b,c} and {b,c,d} are recomputed."""
    rates = {"a": 10, "b": 14, "c": 9, "d": 12}
    run = warm(rates, "((a b) c) d")
    run.join.migrate("a ((b c) d)", "moving_state")
    run.process(after(rates, 1))
    work = total(run, "new")
    for counts, counted in (("comparisons", work.comparisons), ("inserted rows", work.inserted_rows)):
        lower = join(rates["b"], rates["c"], counts=counts)
        # The rows of {b,c} are those that have just been recomputed.
        upper = join(lower.state_ab / W, rates["d"], counts=counts)
        times = [recompute_time(lower), recompute_time(upper)]
        assert moving_state_time(0, 0, sum(times)) == pytest.approx(counted, rel=WITHIN)
        # By equation 8, with the rate of {b,c} by (2), it would be almost twice as much.
        printed = times[0] + recompute_time(join(lower.lambda_ab, rates["d"], counts=counts))
        assert printed > 1.5 * counted


def test_matching_and_moving_states_is_next_to_nothing():
    assert match_time(3, 3, 1e-8) + move_time(3, 3, 1e-7) < 1e-6
    assert match_time(3, 2, 1.0) == 24
    assert move_time(3, 2, 1.0) == 4


@pytest.mark.parametrize(("old", "new"), [("a b c", "(a b) c"), ("(a b) c", "a (b c)")])
def test_parallel_track_takes_a_window_whatever_the_height_of_the_plan(old, new):
    """Equation 4 for a height of 1; the paper's operators need twice that above."""
    rates = dict.fromkeys("abc", 4)
    run = warm(rates, old)
    run.join.migrate(new, "parallel_track")
    run.process(after(rates, W + 4))
    assert run.ends
    assert len(run.running) == pytest.approx(parallel_track_time(W, 1), rel=WITHIN)
    assert parallel_track_time(W, 3) == 2 * W


RATES = {"a": 10, "b": 14, "c": 9}


@pytest.fixture(scope="module")
def in_parallel() -> RecordedRun:
    """A run that has migrated by parallel track for a window."""
    with unmerged():
        run = warm(RATES, "(a b) c")
        run.join.migrate("a (b c)", "parallel_track")
        return run.process(after(RATES, W))


def test_the_old_plan_of_parallel_track_runs_as_before(in_parallel):
    """Equation 5, for the time that the migration takes; the upper operator gets rows by equation 2."""
    rates, run = RATES, in_parallel
    lower = join(rates["a"], rates["b"], counts="comparisons")
    upper = join(lower.lambda_ab, rates["c"], counts="comparisons")
    times = [old_operator_time(operator, W) for operator in (lower, upper)]
    assert sum(times) == pytest.approx(total(run, "old").comparisons, rel=WITHIN)
    # The paper counts purging a row as inserting one; the engine purges slices.
    stored = sum(s.rows for s in run.last.slices if s.owner.state == StateId("a,b"))
    assert stored == pytest.approx(lower.lambda_ab * W, rel=WITHIN)
    inserting = old_operator_time(join(rates["a"], rates["b"], counts="inserted rows"), W) / 2
    assert inserting == pytest.approx(total_rows(run, "a", "b"), rel=WITHIN)


def total_rows(run: RecordedRun, *streams: str) -> int:
    before, now = run.manifests[WARM_UP - 1], run.last
    return sum(now.streams[s].rows - before.streams[s].rows for s in streams)


def test_the_new_plan_of_parallel_track_starts_from_nothing(in_parallel):
    """Equations 6 and 7: what the new plan's lower operator outputs, and what both compare."""
    rates, run = RATES, in_parallel
    lower = join(rates["b"], rates["c"], counts="comparisons")
    moments = np.arange(0, W, 0.01)
    output = np.array([new_output_rate(lower, t) for t in moments])
    stored = np.cumsum(output) * 0.01
    state = next(s for s in run.last.migration.state_ids.values() if s.streams == ("b", "c"))
    produced = sum(s.rows for s in run.last.slices if s.owner.state == state)
    assert stored[-1] == pytest.approx(produced, rel=WITHIN)
    # The upper operator joins what the lower one outputs with rows of a that have come since the start.
    upper = float((output * rates["a"] * moments + rates["a"] * stored).sum() * 0.01)
    counted = total(run, "new").comparisons
    assert new_operator_time(lower, W) + upper == pytest.approx(counted, rel=WITHIN)
    assert printed_equation_6(lower) > 2 * counted
    assert printed_equation_7(lower, W) == pytest.approx(stored[-1], rel=0.01)


def printed_equation_6(join: WindowJoin) -> float:
    """The first window of T_BC as it is printed."""
    return join.w * join.t_j * 2 * join.lambda_a * join.lambda_b * join.w**2 / 2


def printed_equation_7(join: WindowJoin, t: float) -> float:
    """lambda_BC as it is printed, for the first window."""
    return 2 * join.lambda_a * join.lambda_b * join.sigma_ab * t**2 / 2


def test_new_operators_are_old_ones_after_a_window():
    operator = join(3, 5, counts="comparisons")
    both = new_operator_time(operator, 2 * W)
    assert both == new_operator_time(operator, W) + old_operator_time(operator, W)
    assert new_output_rate(operator, 2 * W) == operator.lambda_ab


class TwoPlans:
    """Two plans as black boxes: what each compares, epoch by epoch, from when a migration begins."""

    RATES: ClassVar = {"a": 9, "b": 12, "c": 11}
    LASTS = W

    def __init__(self) -> None:
        old, new = "(a b) c", "a (b c)"
        self.old = self._comparisons(old, 0)[-self.LASTS :]
        # Its first rows are those of the window before the migration.
        self.new = self._comparisons(new, WARM_UP - W)
        # What a row costs is learnt from others: the first of the migration, and those before it.
        other_old, other_new = self._comparisons(old, 0, seed=1), self._comparisons(new, WARM_UP - W, seed=1)
        costs = (other_old[WARM_UP : WARM_UP + W // 2], other_new[W : W + W // 2], other_new[:W])
        self.per_row = [sum(part) / len(part) / sum(self.RATES.values()) for part in costs]

    def _comparisons(self, plan: str, first: int, seed: int = 0) -> list[int]:
        run = RecordedRun(clique("abc"), plan)
        run.process(arrivals(self.RATES, range(first, WARM_UP + self.LASTS), seed))
        return [sum((w.comparisons for w in work.values()), 0) for work in run.work]

    def at_load(self, load: float) -> tuple[list[float], list[float], BlackBoxModel]:
        """The seconds that either plan takes for each epoch, if the new one needs this share of the time."""
        tau = sum(self.RATES.values()) / 3
        speed = tau * 3 * self.per_row[1] / load
        t_old, t_new, t_new_before = (comparisons / speed for comparisons in self.per_row)
        boxes = BlackBoxModel(
            tau=tau, tau_before=tau, n=3, w=W, t_old=t_old, t_new=t_new, t_new_before=t_new_before
        )
        return [c / speed for c in self.old], [c / speed for c in self.new], boxes


@pytest.fixture(scope="module")
def two_plans() -> TwoPlans:
    with unmerged():
        return TwoPlans()


def test_generalized_moving_state_and_the_spike_after_it_take_as_long_as_predicted(two_plans):
    """Duration, which is the CPU time, and the length of the spike after it."""
    _, new, boxes = two_plans.at_load(0.7)
    clock = duration = sum(new[:W])
    assert gms_duration(boxes) == pytest.approx(duration, rel=WITHIN)
    # Then the rows that have come meanwhile, an epoch a second, until none has waited.
    for arrived, seconds in enumerate(new[W:], start=1):
        if arrived > clock:
            break
        clock += seconds
    assert gms_spike_length(boxes) == pytest.approx(clock - duration, rel=WITHIN)


def test_generalized_parallel_track_takes_the_processor_for_as_long_as_predicted(two_plans):
    """CPU time in a window, in which the new plan has fewer rows to search than it will have later."""
    old, new, boxes = two_plans.at_load(0.3)
    cpu = sum(old[: round(gpt_duration(boxes))]) + sum(new[:W])
    assert gpt_cpu(replace(boxes, t_new=boxes.t_new_before)) == pytest.approx(cpu, rel=WITHIN)
    assert gpt_cpu(boxes) > cpu


def test_both_phases_of_generalized_hybrid_take_as_long_as_predicted(two_plans):
    """Duration of both phases: the old plan runs first, the new one in the time that it leaves."""
    old, new, boxes = two_plans.at_load(0.3)
    clock, spare, done, ends = 0, 0.0, 0, []
    for waiting in (W, inf):
        # The second phase ends when the new plan has processed all rows that have come by then.
        while done < min(waiting, W + clock) or not clock:
            spare += 1 - old[clock]
            clock += 1
            while done < W + clock and spare > 0:
                spare -= new[done]
                done += 1
        ends.append(clock)
    assert ghm_phases(boxes)[0] == pytest.approx(ends[0], rel=WITHIN)
    assert ghm_duration(boxes) == pytest.approx(ends[1], rel=WITHIN)
    assert printed_ghm_duration(boxes) > 2 * ends[1]


def printed_ghm_duration(boxes: BlackBoxModel) -> float:
    """Duration_GHM as it is printed."""
    d1, _ = ghm_phases(boxes)
    first = boxes.load_new * d1 * (1 - boxes.load_old)
    squared = boxes.tau * boxes.n * boxes.replay_time
    return first + squared / ((1 - boxes.load_old) * (1 - boxes.load_new - boxes.load_old))


def test_plans_that_are_too_slow_never_catch_up():
    slow = BlackBoxModel(tau=1.0, tau_before=1.0, n=2, w=10, t_old=0.3, t_new=0.6, t_new_before=0.1)
    assert gms_duration(slow) == 2
    assert gms_spike_length(slow) == inf
    assert ghm_phases(slow)[0] == pytest.approx(2 / 0.4)
    assert ghm_phases(slow)[1] == inf
    stuck = BlackBoxModel(tau=1.0, tau_before=1.0, n=2, w=10, t_old=0.5, t_new=0.1, t_new_before=0.1)
    assert ghm_duration(stuck) == inf
