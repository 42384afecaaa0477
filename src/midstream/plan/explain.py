"""Explaining a plan as text: the tree, where its nodes run, and the sizes of its states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from midstream.plan.explain_sites import explain_sites
from midstream.plan.layout import Fragment, Layout
from midstream.plan.sited_plan import SitedPlan
from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan
from midstream.query.aggregation import Aggregation
from midstream.query.query import Query
from midstream.values import show_duration


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of a state, over all engine partitions."""

    rows: int = 0
    bytes: int = 0
    slices: int = 0


def explain(query: Query, layout: Layout, sizes: Mapping[StateId, StateSize]) -> str:
    """The whole explanation."""
    if query.topology is not None:
        tree = [explain_sites(SitedPlan(layout.plan.sequences), query.topology), *_windows_at(layout, sizes)]
    else:
        tree = list(_tree(query, layout, layout.plan, sizes, "", ""))
    lines = [f"Plan: {layout.plan}", "", *tree]
    lines += ["", "Key classes:"]
    lines += [f"  k{c.id}: {c}" for c in query.classes] or ["  none"]
    if query.residuals:
        lines += ["", "Residual predicates:", *(f"  {residual.text}" for residual in query.residuals)]
    lines += ["", "Windows:", *_windows(query)]
    lines += ["", f"Stages: {layout.stages}"]
    lines += [f"  {_stage(fragment)}" for fragment in layout.fragments if fragment.nodes or not fragment.site]
    if query.aggregation is not None:
        lines += ["", "Aggregates, in a stage after these:", *_aggregates(query.aggregation)]
    return "\n".join(lines)


def _windows_at(layout: Layout, sizes: Mapping[StateId, StateSize]) -> Iterator[str]:
    """The windows that are kept at each site; those of streams that live there always are."""
    yield ""
    yield "Windows that are kept:"
    for fragment in layout.fragments:
        for state in fragment.arrangements:
            size = sizes.get(state, StateSize())
            yield f"  {state.streams[0]} at {fragment.site}  {_size(size)}"


def _aggregates(aggregation: Aggregation) -> Iterator[str]:
    windows = aggregation.windows
    time = "the latest component" if windows.stream is None else windows.stream
    by = "".join(f"{key.ref}, " for key in aggregation.keys)
    apart = f", {show_duration(windows.slide)} apart" if windows.slide < windows.length else ""
    yield f"  by {by}windows of {show_duration(windows.length)}{apart}, by the time of {time}"
    yield from (f"  {aggregate.text} AS {aggregate.name}" for aggregate in aggregation.aggregates)
    if aggregation.is_update_mode:
        yield "  in update mode: a group comes out whenever it changes"


def _tree(
    query: Query,
    layout: Layout,
    plan: Plan,
    sizes: Mapping[StateId, StateSize],
    first_indent: str,
    next_indent: str,
) -> Iterator[str]:
    streams = tuple(name for name in query.names if name in plan.streams)
    label = ",".join(streams)
    size = next((s for id_, s in sizes.items() if id_ in layout.states and id_.streams == streams), None)
    size_text = "" if plan == layout.plan else f"  {_size(size or StateSize())}"
    if plan.stream is not None:
        yield f"{first_indent}{plan.stream}{size_text}"
        return
    nodes = ((f, node) for f in layout.fragments for node in f.nodes)
    fragment, node = next((f, n) for f, n in nodes if n.id.streams == streams)
    residuals = [query.residuals[i].text for probe in node.probes[0] for i in probe.residuals]
    residual_text = f", then {' and '.join(residuals)}" if residuals else ""
    verified = sorted({c for probe in node.probes[0] for c in probe.verify} - set(fragment.key))
    verified_text = f" and {', '.join(f'k{c}' for c in verified)}" if verified else ""
    yield f"{first_indent}join {{{label}}} on {_key(fragment)}{verified_text}{residual_text}{size_text}"
    for i, child in enumerate(plan.inputs):
        last = i == len(plan.inputs) - 1
        yield from _tree(
            query,
            layout,
            child,
            sizes,
            next_indent + ("└─ " if last else "├─ "),
            next_indent + ("   " if last else "│  "),
        )


def _windows(query: Query) -> list[str]:
    """The most common width once, then the pairs that differ from it."""
    pairs = [(a, b) for i, a in enumerate(query.names) for b in query.names[i + 1 :]]
    widths = {pair: query.windows.width(*pair) for pair in pairs}
    common, count = Counter(widths.values()).most_common(1)[0]
    if count == 1:
        return [f"  {a}, {b}: {_width(width)}" for (a, b), width in widths.items()]
    others = [f"  {a}, {b}: {_width(width)}" for (a, b), width in widths.items() if width != common]
    return [f"  {'every other pair' if others else 'every pair'}: {_width(common)}", *others]


def _width(width: int | None) -> str:
    return "none" if width is None else show_duration(width)


def _key(fragment: Fragment) -> str:
    return ", ".join(f"k{c}" for c in fragment.key) if fragment.key else "no common key"


def _stage(fragment: Fragment) -> str:
    nodes = ", ".join(f"{{{node.id.label}}}" for node in fragment.nodes)
    if fragment.site:
        where = f"at {fragment.site}"
        return f"{fragment.stage + 1}. {nodes} {where}{f' by {_key(fragment)}' if fragment.key else ''}"
    where = f"by {_key(fragment)}" if fragment.key else "all in one engine partition: no common key"
    return f"{fragment.stage + 1}. {nodes} {where}"


def _size(size: StateSize) -> str:
    return f"[{size.rows:,} rows, {_bytes(size.bytes)}, {size.slices} slices]"


def _bytes(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
