"""How long a migration takes and what it costs, as the papers estimate it, in their own symbols.

**Dynamic plan migration** (equations 1 to 7): moving state and parallel track, for trees of two-way joins.
Times are those of nested loops. With ``t_j`` 1 and ``t_s`` 0 they are numbers of comparisons, which tasks
count (``WorkCounts.comparisons``). The engine probes sorted states instead; ``adapt/cost.py`` says what that
costs.

**HybMig** (section 4.4): plans as black boxes, of which only the time per row is known. It does not matter
how they join, so these estimates hold for the engine as they are (``adapt/migration_time.py``).

Where an equation cannot be right as it is printed, the docstring says what is printed, and why it is wrong.
``tests/migration/test_paper_models.py`` compares all with counted runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowJoin:
    """A join of A and B within a window, by nested loops; rates are rows per unit of time."""

    lambda_a: float
    lambda_b: float
    sigma_ab: float
    """The share of pairs of rows that match."""
    w: float
    """The window."""
    t_j: float
    """Time to join a pair of rows."""
    t_s: float
    """Time to insert a row into a state, or to purge it."""

    @property
    def lambda_ab(self) -> float:
        """The rate of its output (2)."""
        return 2 * self.lambda_a * self.lambda_b * self.w * self.sigma_ab

    @property
    def state_a(self) -> float:
        """|S_A|, the rows of A within the window."""
        return self.lambda_a * self.w

    @property
    def state_b(self) -> float:
        """|S_B|, the rows of B within the window."""
        return self.lambda_b * self.w

    @property
    def state_ab(self) -> float:
        """|S_AB|, the combined rows whose components are both within the window.

        By (8) it is ``lambda_ab * w``, twice as much: every combined row is kept for a whole window, as if
        it were new when it is made. But one of its components is older.
        """
        return self.state_a * self.state_b * self.sigma_ab


def match_time(n: int, m: int, t_m: float) -> float:
    """T_match: the states of n old operators are compared with those of m new ones, t_m for each pair."""
    return 4 * n * m * t_m


def move_time(n: int, m: int, t_c: float) -> float:
    """T_move: states that both plans have are shared, t_c for each."""
    return 2 * min(n, m) * t_c


def recompute_time(join: WindowJoin) -> float:
    """T_S_AB (1): all pairs of the two states are joined, and those that match are stored."""
    pairs = join.state_a * join.state_b
    return pairs * join.t_j + pairs * join.sigma_ab * join.t_s


def moving_state_time(t_match: float, t_move: float, t_s: float) -> float:
    """T_MS (3), where t_s is the time to recompute all states that the new plan lacks (1)."""
    return t_match + t_move + t_s


def parallel_track_time(w: float, h: int) -> float:
    """T_PT (4), with an old plan of height h.

    Operators of the paper purge one input by the rows of the other: an old row is only purged by a combined
    row whose components are all new. That takes two windows if there are combined rows. The engine purges by
    watermarks, which takes one window, whatever the height.
    """
    return w if h == 1 else 2 * w


def old_operator_time(join: WindowJoin, duration: float) -> float:
    """T_AB (5): an operator of the old plan, for some time; printed is 2 W, the longest migration."""
    joining = join.t_j * (join.lambda_a * join.state_b + join.lambda_b * join.state_a)
    return duration * (joining + 2 * join.t_s * (join.lambda_a + join.lambda_b))


def new_operator_time(join: WindowJoin, duration: float) -> float:
    """T_BC (6): an operator of the new plan, whose states are empty at first, for some time.

    As printed, the time of joining in the first window is multiplied by W once more: the integral is the time
    of the whole window already. It also names A and B where it means B and C.
    """
    filling = min(duration, join.w)
    # At time t, each row meets as many rows of the other state as have come until then: the integral of t.
    joining = join.t_j * 2 * join.lambda_a * join.lambda_b * filling**2 / 2
    inserting = join.t_s * (join.lambda_a + join.lambda_b) * filling
    return joining + inserting + old_operator_time(join, duration - filling)


def new_output_rate(join: WindowJoin, t: float) -> float:
    """lambda_BC (7): the output of such an operator at time t.

    As printed it is, for the first window, the integral of this: all that has been output until t.
    """
    return 2 * join.lambda_a * join.lambda_b * join.sigma_ab * min(t, join.w)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlackBoxModel:
    """Two plans of which only the time per row is known."""

    tau: float
    """The rate of each stream during the migration."""
    tau_before: float
    """The rate in the window before it: tau'."""
    n: int
    """How many streams."""
    w: float
    """The window."""
    t_old: float
    """Time per new row in the old plan."""
    t_new: float
    """Time per new row in the new plan."""
    t_new_before: float
    """Time per old row in the new plan: T'_new."""

    @property
    def replay_time(self) -> float:
        """The time in which the new plan processes all old rows."""
        return self.tau_before * self.n * self.w * self.t_new_before

    @property
    def load_old(self) -> float:
        """The share of the time that the old plan needs for new rows."""
        return self.tau * self.n * self.t_old

    @property
    def load_new(self) -> float:
        """The share of the time that the new plan needs for new rows."""
        return self.tau * self.n * self.t_new


def gms_duration(boxes: BlackBoxModel) -> float:
    """Duration and CPU time of moving state: new rows wait until all old ones have been replayed."""
    return boxes.replay_time


def gms_spike_length(boxes: BlackBoxModel) -> float:
    """How long the new plan then takes for the rows that have waited; forever, if it is too slow."""
    return gms_duration(boxes) * boxes.load_new / (1 - boxes.load_new) if boxes.load_new < 1 else inf


def gpt_duration(boxes: BlackBoxModel) -> float:
    """Duration of parallel track: a window."""
    return boxes.w


def gpt_cpu(boxes: BlackBoxModel) -> float:
    """CPU time of parallel track: both plans process all new rows."""
    return boxes.tau * boxes.n * boxes.w * (boxes.t_old + boxes.t_new)


def ghm_phases(boxes: BlackBoxModel) -> tuple[float, float]:
    """d1 and d2 of hybrid migration: until all old rows, and then all rows that have waited, are processed.

    The old plan runs first, and the new one in the time that it leaves. In the printed sum of both the "+"
    between them is missing, and so is T_new in d2.
    """
    if boxes.load_old >= 1:
        return inf, inf
    d1 = boxes.replay_time / (1 - boxes.load_old)
    spare = 1 - boxes.load_new - boxes.load_old
    return d1, boxes.load_new * d1 / spare if spare > 0 else inf


def ghm_duration(boxes: BlackBoxModel) -> float:
    """Duration and CPU time of hybrid migration: the machine is never idle."""
    return sum(ghm_phases(boxes))
