"""What differs between two definitions, line by line, in the words in which a user asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from midstream.values import show_duration

Definition = Mapping[str, Any]
"""As a manifest has it."""


def describe_changes(before: Definition, after: Definition) -> Iterator[str]:
    """The lines; none if both ask the same."""
    yield from _listed("stream", before["order"], after["order"])
    for name in before["order"]:
        if name in after["streams"]:
            was, now = before["streams"][name], after["streams"][name]
            yield from _changed(f"event time of {name}", was["time"], now["time"])
            yield from _changed(f"lateness of {name}", was["lateness"], now["lateness"])
    yield from _listed("condition", before["on"], after["on"])
    yield from _windows(before, after)
    yield from _results(before, after)
    yield from _changed("time zone", before["timeZone"], after["timeZone"])
    yield from _changed("sites of the streams", _sites(before), _sites(after))


def _changed(what: str, before: str, after: str) -> Iterator[str]:
    if before != after:
        yield f"{what}: {before} -> {after}"


def _listed(noun: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """What was added to a list, and left out of it."""
    yield from (f"{noun} left out: {text}" for text in before if text not in after)
    yield from (f"{noun} added: {text}" for text in after if text not in before)
    if sorted(before) == sorted(after) and before != after:
        yield f"{noun}s: in another order, {', '.join(after)}"


def _windows(before: Definition, after: Definition) -> Iterator[str]:
    one_before, one_after = _one_window(before), _one_window(after)
    if one_before is not None and one_after is not None:
        yield from _changed("window between streams", one_before, one_after)
        return
    for a, b in combinations(sorted({*before["order"], *after["order"]}), 2):
        windows = [
            each["within"].get(f"{a}, {b}", "none") if {a, b} <= set(each["order"]) else None
            for each in (before, after)
        ]
        # Of streams that come there is only the new one, and streams that go have none any more.
        was, now = windows
        if now is not None and was != now:
            yield (
                f"window between {a} and {b}: {now}"
                if was is None
                else (f"window between {a} and {b}: {was} -> {now}")
            )


def _one_window(definition: Definition) -> str | None:
    """The window between all streams, if all pairs have the same."""
    pairs = len(definition["order"]) * (len(definition["order"]) - 1) // 2
    windows = list(definition["within"].values()) + ["none"] * (pairs - len(definition["within"]))
    return windows[0] if len(set(windows)) == 1 else None


def _results(before: Definition, after: Definition) -> Iterator[str]:
    was, now = before["aggregation"], after["aggregation"]
    if was is None and now is None:
        yield from _listed("output", before["select"], after["select"])
    elif was is None or now is None:
        yield f"results: {_show_results(before)} -> {_show_results(after)}"
    else:
        yield from _listed("aggregate", was["aggregates"], now["aggregates"])
        yield from _listed("group", was["by"], now["by"])
        yield from _changed("windows of results", _show_windows(was), _show_windows(now))
        if was["by"] == now["by"]:
            places = [f"column {each['window']['position'] + 1}" for each in (was, now)]
            yield from _changed("place of the window among the groups", *places)
        yield from _changed("output mode", was["mode"], now["mode"])


def _show_results(definition: Definition) -> str:
    aggregation = definition["aggregation"]
    if aggregation is None:
        return ", ".join(definition["select"])
    groups = ", ".join([*aggregation["by"], f"window of {_show_windows(aggregation)}"])
    return f"{', '.join(aggregation['aggregates'])} by {groups}"


def _show_windows(aggregation: Mapping[str, Any]) -> str:
    window = aggregation["window"]
    length, slide, start = (show_duration(window[part]) for part in ("length", "slide", "start"))
    text = length if length == slide else f"{length} every {slide}"
    text += f", {start} later" if window["start"] else ""
    return text if window["time"] is None else f"{text}, by the time of {window['time']}"


def _sites(definition: Definition) -> str:
    sites = definition.get("sites")
    if sites is None:
        return "none"
    return ", ".join(f"{name} at {site}" for name, site in sites["streams"].items())
