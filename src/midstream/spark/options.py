"""The options of a query: names, defaults, what they mean, and how their text is read.

The table is the single source: the writer checks against it, and the guide's table is generated from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from midstream.adapt.policy import GOALS
from midstream.engine.references import MAX_PARTITIONS
from midstream.errors import OptionError, QueryError
from midstream.migration.strategies import STRATEGY_CHOICES
from midstream.protocol.settings import CLOCKS, MAX_GROUPS
from midstream.storage.remote import PROTOCOLS, is_remote
from midstream.values import Micros, duration


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its documented default, its meaning, and the reader of its text."""

    name: str
    default: str
    meaning: str
    read: Callable[[str], object]
    restart: str = "no"
    """Whether it may change when a query is started again; the guide says so in these words."""


@dataclass(frozen=True)
class Options:
    """The options that a query was given, read and checked."""

    values: Mapping[str, object] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """An option that is text, or None if it was not given."""
        value = self.values.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """An option that is a whole number, or None if it was not given."""
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def duration(self, name: str) -> Micros | None:
        """An option that is a duration, or None if it was not given."""
        value = self.number(name)
        return None if value is None else Micros(value)


def read_option(name: str, value: object) -> tuple[str, object]:
    """The proper name and the value of an option; unknown names and bad values are errors."""
    option = _BY_NAME.get(str(name).lower())
    if option is None:
        raise OptionError(
            "an option must be one that Midstream knows",
            got=repr(name),
            hint=f"the options are {', '.join(o.name for o in OPTIONS)}",
        )
    if value is None:
        raise OptionError(f"{option.name} must have a value", got="None", hint="leave the option out")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return option.name, option.read(text)


def _whole_number(name: str, low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise OptionError(f"{name} must be a whole number from {low} to {high}", got=repr(text))
        return int(text)

    return read


def _duration(name: str) -> Callable[[str], Micros]:
    def read(text: str) -> Micros:
        try:
            return duration(text, name)
        except QueryError as error:
            raise OptionError(error.must, got=error.got, hint=error.hint) from None

    return read


def _duration_or_off(name: str) -> Callable[[str], Micros | str]:
    read_duration = _duration(name)

    def read(text: str) -> Micros | str:
        return "off" if text.lower() == "off" else read_duration(text)

    return read


def _path(name: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        url = urlsplit(text)
        local = url.scheme == "" or (url.scheme == "file" and url.netloc in ("", "localhost"))
        if not local or not text.strip():
            raise OptionError(
                f"{name} must be a folder of a local or mounted file system", got=_address(text)
            )
        # '..' goes before links are followed, as in Spark; links stay, since they may differ by machine.
        path = os.path.abspath(unquote(url.path) if url.scheme else text)  # noqa: PTH100
        if set(path) & set("*?[]{}\\\0"):
            must = f"{name} must not have a zero byte, nor characters that Spark takes for patterns"
            raise OptionError(must, got=repr(path))
        return path

    return read


def _address(text: str) -> str:
    """An address as it may be shown: without what is before '@', which may be a password."""
    head, at, tail = text.rpartition("@")
    return repr(f"{head.partition('://')[0]}://...@{tail}" if at else text)


def _location(name: str) -> Callable[[str], str]:
    folder = _path(name)

    def read(text: str) -> str:
        if is_remote(text) and "@" not in text:
            return text.rstrip("/")
        if urlsplit(text).scheme in ("", "file"):
            return folder(text)
        raise OptionError(
            f"{name} must be a folder, or an address of a store whose conditional puts are known to be safe",
            got=_address(text),
            hint=f"such addresses begin with {' or '.join(f'{scheme}://' for scheme in PROTOCOLS)}, "
            "and have no credentials in them",
        )

    return read


def _choice(name: str, *known: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in known:
            raise OptionError(f"{name} must be one of {', '.join(known)}", got=repr(text))
        return text.lower()

    return read


def _only_off(name: str, what: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() != "off":
            raise OptionError(f"{name} must be 'off': this version does not {what} yet", got=repr(text))
        return "off"

    return read


def _not_yet(name: str, what: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        raise OptionError(f"{name} must not be set: this version does not {what} yet", got=repr(text))

    return read


OPTIONS: tuple[Option, ...] = (
    Option("path", "none", "Folder of the Parquet sink.", _path("path"), "yes"),
    Option(
        "checkpointLocation",
        "none; a temporary folder for `memory`, `console` and `foreachBatch`",
        "Folder of the query's state and progress, or an address `s3://bucket/folder`. The same folder goes "
        "on with the same query.",
        _location("checkpointLocation"),
        "if the folder moves with it",
    ),
    Option(
        "plan",
        "left-deep in the order of the streams, staying connected",
        "The plan to start with, e.g. `(orders payments) shipments`. A restarted query goes on with the "
        "plan of its checkpoint.",
        str,
    ),
    Option(
        "partitions",
        "Spark's default parallelism",
        "Number of engine partitions: tasks that join in parallel. Fixed for the life of a checkpoint.",
        _whole_number("partitions", 1, MAX_PARTITIONS),
    ),
    Option(
        "groups",
        "256, or 4 per partition if that is more",
        "Number of partition groups, the unit in which state is placed. Fixed for the life of a checkpoint.",
        _whole_number("groups", 1, MAX_GROUPS),
    ),
    Option(
        "lateRows",
        "none: late rows are only counted",
        "Folder of a Parquet table that keeps late rows, with their stream and the reason.",
        _path("lateRows"),
        "yes",
    ),
    Option(
        "idleTimeout",
        "none: a silent stream is waited for",
        "A stream that brings nothing while the others' event time goes on by more than this no longer "
        "holds back the expiry of state.",
        _duration("idleTimeout"),
        "yes",
    ),
    Option(
        "maxEventTimeAhead",
        "1 day",
        "How far ahead of the clock an event time may be. A row further ahead moves no watermark and is not "
        "joined: it is counted and, with `lateRows`, kept with the reason `future`. `off` accepts any time.",
        _duration_or_off("maxEventTimeAhead"),
        "yes",
    ),
    Option(
        "eventTimeClock",
        "wall",
        "What `maxEventTimeAhead` is measured against: `wall`, the wall clock; or `stream`, the latest event "
        "time of the stream itself in earlier batches, for replays whose times are not those of today.",
        _choice("eventTimeClock", *CLOCKS),
        "yes",
    ),
    Option(
        "numRows",
        "20",
        "Rows that the console sink shows of each batch.",
        _whole_number("numRows", 0, 1 << 30),
        "yes",
    ),
    Option(
        "truncate",
        "true",
        "Whether the console sink shortens long values.",
        _choice("truncate", "true", "false"),
        "yes",
    ),
    Option(
        "adapt",
        "auto",
        "Whether the query changes its plan by itself when another one costs less: `auto`, or `off`.",
        _choice("adapt", "auto", "off"),
        "yes",
    ),
    Option(
        "goal",
        "steady",
        "What strategy `auto` looks for: `steady`, batches that take about as long as ever; `cheap`, the "
        "least work in all; `quick`, to be on the new plan soon.",
        _choice("goal", *GOALS),
        "yes",
    ),
    Option(
        "strategy",
        "auto",
        "How the plan is changed, if `query.migrate` does not say: `moving_state`, `parallel_track`, "
        "`hybrid`, or `auto`, by the goal.",
        _choice("strategy", *STRATEGY_CHOICES),
        "yes",
    ),
    Option(
        "background",
        "auto",
        "Whether `hybrid` computes the states that the new plan lacks, in the time that batches leave over: "
        "`auto`, or `off` to wait until a window has passed.",
        _choice("background", "auto", "off"),
        "yes",
    ),
    Option("stateMemory", "none", "Budget of state in memory.", _not_yet("stateMemory", "limit memory")),
    Option("spill", "none", "Which state leaves memory first.", _not_yet("spill", "spill state")),
    Option("balance", "off", "Whether state moves between partitions.", _only_off("balance", "move state")),
)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}
