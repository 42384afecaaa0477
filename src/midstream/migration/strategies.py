"""Migration strategies, as records of traits. Other code depends on the traits, never on a name.

- **Moving state**: the first epoch rebuilds every state that the new plan lacks, and runs the new plan
  alone.
- **Parallel track**: the new plan starts without rows. The old one runs in full until its rows have
  expired, and the new one's results wait until then.
- **Hybrid**: the new plan shares the states that both have. The old one is restricted to what the new one
  cannot produce. Missing states may be rebuilt in the background; without that, the plans may be
  isolated.

Black-box strategies run a new box, which may have another definition, beside the old one, and know of
both no more than what goes in and out. Of the rows that the old box has stored, the new one gets all at
once, all in portions while the old box serves, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from midstream.errors import OptionError, show_value

AUTO = "auto"
"""What a user may ask for instead of a strategy: the one that suits the goal best when it begins."""


SITE_SWITCH = "site_switch"
"""What stands for a strategy where streams live at sites: there is one way to change their plan."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way in which a strategy may run."""

    background: bool
    isolated: bool


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The traits of a strategy."""

    name: str
    runs_old_plan: bool
    """Whether both plans run side by side; else all that the new plan lacks is rebuilt in the first epoch."""
    isolation: Literal["always", "optional", "never"]
    """Whether the new plan starts without any rows, instead of sharing the states that both plans have."""
    prunes: bool
    """Whether the old plan drops rows early that it need not produce; else only its results are filtered."""
    defers_results: bool
    """Whether results of the new plan wait until the old plan produces none any more."""
    rebuilds_in_background: bool
    """Whether it can rebuild states that the new plan lacks while both plans run."""

    def waits_for_expiry(self, *, background: bool) -> bool:
        """Whether it ends only when the old plan's rows have expired."""
        return self.runs_old_plan and not (self.rebuilds_in_background and background)

    def variants(self) -> Iterator[Variant]:
        """The ways in which it may run."""
        isolations = {"always": (True,), "never": (False,), "optional": (False, True)}[self.isolation]
        for isolated in isolations:
            yield Variant(background=False, isolated=isolated)
            if self.rebuilds_in_background and not isolated:
                yield Variant(background=True, isolated=False)

    def may_isolate(self, *, background: bool) -> bool:
        """Whether there is a choice between sharing states and starting without rows."""
        return self.isolation == "optional" and not background


# In the order of preference: of two that serve a goal equally well, the first is taken.
_ALL = (
    Strategy(
        name="hybrid",
        runs_old_plan=True,
        isolation="optional",
        prunes=True,
        defers_results=False,
        rebuilds_in_background=True,
    ),
    Strategy(
        name="moving_state",
        runs_old_plan=False,
        isolation="never",
        prunes=False,
        defers_results=False,
        rebuilds_in_background=False,
    ),
    Strategy(
        name="parallel_track",
        runs_old_plan=True,
        isolation="always",
        prunes=False,
        defers_results=True,
        rebuilds_in_background=False,
    ),
)
STRATEGIES: Mapping[str, Strategy] = {strategy.name: strategy for strategy in _ALL}


@dataclass(frozen=True, kw_only=True)
class BlackBoxStrategy:
    """The trait of a strategy that takes a whole query for a box into which it does not look."""

    name: str
    history: Literal["at once", "in portions", "none"]
    """How the new box gets the rows that the old one has stored."""


_BLACK_BOX = (
    BlackBoxStrategy(name="generalized_hybrid", history="in portions"),
    BlackBoxStrategy(name="generalized_moving_state", history="at once"),
    BlackBoxStrategy(name="generalized_parallel_track", history="none"),
)
BLACK_BOX_STRATEGIES: Mapping[str, BlackBoxStrategy] = {strategy.name: strategy for strategy in _BLACK_BOX}
WITHOUT_HISTORY = next(each.name for each in _BLACK_BOX if each.history == "none")
STRATEGY_CHOICES: tuple[str, ...] = (AUTO, *STRATEGIES)
"""What a user may ask for."""


def check_black_box_strategy(name: str) -> BlackBoxStrategy:
    """The black-box strategy of a name; an error if it is none."""
    if not isinstance(name, str) or name not in BLACK_BOX_STRATEGIES:
        must = f"the strategy of a replacement must be one of {', '.join(BLACK_BOX_STRATEGIES)}"
        hint = None if name is None else "write plan=... for a plan"
        if name in STRATEGY_CHOICES:
            hint = "that is one of migrations, which change the plan alone: migrate(plan, strategy)"
        raise OptionError(must, got=show_value(name), hint=hint)
    return BLACK_BOX_STRATEGIES[name]


def check_strategy_choice(name: str) -> str:
    """The name of a strategy, or ``auto``; an error if it is neither."""
    if name not in STRATEGY_CHOICES:
        raise OptionError(
            f"strategy must be one of {', '.join(STRATEGY_CHOICES)}",
            got=show_value(name),
            hint=f"query.migrate also takes {', '.join(BLACK_BOX_STRATEGIES)}",
        )
    return name
