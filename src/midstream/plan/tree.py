"""Plans: trees whose leaves are streams and whose inner nodes join two or more inputs.

The text form writes a node as its inputs side by side: ``((a b) c) d`` is left-deep, ``(a b) (c d)``
bushy, ``a b c d`` one 4-way node. Parentheses around the whole are optional.

If the streams live at sites, the plan is one node over all of them, with a sequence for each
(``plan/sited_plan.py``): ``a: [b, c], [0, 1]; b: [a, c], [1, 1]; c: [b, a], [0, 0]``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from midstream.errors import PlanError, show_value
from midstream.plan.sited_plan import JoinSequence, is_sited, parse_sequences

_TOKEN = re.compile(r"\s*(?:(\()|(\))|(\w+))")
_HINT = "write inputs side by side, e.g. '((a b) c) d' or '(a b) (c d)'"


@dataclass(frozen=True)
class Plan:
    """A leaf (a stream) or a node over two or more inputs. Equal trees are equal plans."""

    stream: str | None
    inputs: tuple[Plan, ...] = ()
    sequences: tuple[JoinSequence, ...] = ()
    """If streams live at sites: where and in which order the new rows of each are joined."""

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams of the leaves."""
        if self.stream is not None:
            return frozenset((self.stream,))
        return frozenset().union(*(child.streams for child in self.inputs))

    def nodes(self) -> Iterator[Plan]:
        """The inner nodes, each after its inputs."""
        for child in self.inputs:
            yield from child.nodes()
        if self.inputs:
            yield self

    def leaves(self) -> Iterator[str]:
        """The streams from left to right."""
        if self.stream is not None:
            yield self.stream
        for child in self.inputs:
            yield from child.leaves()

    def __str__(self) -> str:
        if self.sequences:
            return "; ".join(map(str, self.sequences))
        return self._text().removeprefix("(").removesuffix(")") if self.inputs else self._text()

    def _text(self) -> str:
        if self.stream is not None:
            return self.stream
        return "(" + " ".join(child._text() for child in self.inputs) + ")"


def leaf(stream: str) -> Plan:
    """The plan of a single stream."""
    return Plan(stream)


def join(*inputs: Plan) -> Plan:
    """A node over ``inputs``."""
    return Plan(None, inputs)


def left_deep(streams: Sequence[str]) -> Plan:
    """Join the streams one after the other in the given order."""
    plan = leaf(streams[0])
    for stream in streams[1:]:
        plan = join(plan, leaf(stream))
    return plan


def sited(sequences: Sequence[JoinSequence]) -> Plan:
    """The plan of streams that live at sites, with a sequence for each, in the order of the query."""
    return Plan(None, tuple(leaf(sequence.head) for sequence in sequences), tuple(sequences))


def parse_plan(text: str, streams: Sequence[str]) -> Plan:
    """Read the text form and check that it is a plan of exactly these streams."""
    if not isinstance(text, str):
        raise PlanError("a plan must be names and parentheses", got=show_value(text), hint=_HINT)
    if is_sited(text):
        return sited(parse_sequences(text, streams))
    names: list[str] = []
    stack: list[list[Plan]] = [[]]
    position = 0
    text = text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise PlanError("a plan must be names and parentheses", got=repr(text), hint=_HINT)
        position = token.end()
        opened, closed, name = token.groups()
        if opened:
            stack.append([])
        elif closed:
            inner = stack.pop()
            if not stack:
                raise PlanError("parentheses must match", got=repr(text), hint=_HINT)
            stack[-1].append(_node(inner, text))
        else:
            names.append(name)
            stack[-1].append(leaf(name))
    if len(stack) != 1:
        raise PlanError("parentheses must match", got=repr(text), hint=_HINT)
    plan = _node(stack[0], text)
    # Checked before the tree is walked: if streams repeat, it may be too deep for recursion.
    _check_names(names, text.strip(), streams)
    return plan


def check_plan(plan: Plan, streams: Sequence[str]) -> None:
    """Refuse a plan that does not have every stream exactly once."""
    _check_names(list(plan.leaves()), str(plan), streams)


def _check_names(names: Sequence[str], text: str, streams: Sequence[str]) -> None:
    counts = Counter(names)
    problems = [
        *(f"{name} is not a stream" for name in counts if name not in streams),
        *(f"{name} is missing" for name in streams if name not in counts),
        *(f"{name} is there twice" for name, count in counts.items() if count > 1),
    ]
    if problems:
        raise PlanError(
            "a plan must have every stream exactly once",
            got=f"{text!r}: {', '.join(problems)}",
            hint=f"the streams are {', '.join(streams)}",
        )


def _node(inputs: list[Plan], text: str) -> Plan:
    if not inputs:
        raise PlanError("a node must have inputs", got=repr(text), hint=_HINT)
    return inputs[0] if len(inputs) == 1 else join(*inputs)


def all_plans(streams: Sequence[str]) -> Iterator[Plan]:
    """Every plan of the streams, up to the order of inputs: 1, 4, 26, 236 for two to five streams."""
    if len(streams) == 1:
        yield leaf(streams[0])
        return
    for parts in _partitions(list(streams)):
        if len(parts) > 1:
            yield from _combine(parts, ())


def _combine(parts: list[list[str]], chosen: tuple[Plan, ...]) -> Iterator[Plan]:
    if not parts:
        yield join(*chosen)
        return
    for plan in all_plans(parts[0]):
        yield from _combine(parts[1:], (*chosen, plan))


def _partitions(items: list[str]) -> Iterator[list[list[str]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for parts in _partitions(rest):
        yield [[first], *parts]
        for i, part in enumerate(parts):
            yield [*parts[:i], [first, *part], *parts[i + 1 :]]
