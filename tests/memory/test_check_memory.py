"""Manifests with cuts that cannot be are refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.memory.check_memory import check_memory
from midstream.plan.state_id import StateId
from midstream.protocol.settings import Settings
from midstream.state.memory import GroupStatistics, Mark, Memory
from tests.helpers import small_query

MANIFEST = replace(InlineJoin(small_query(["a.k = b.k"], "ab"), settings=Settings(1, 4)).manifest, epoch=9)
MARK = Mark({"a": None, "b": 3})
FRAGMENTS = frozenset({"0: a b"})


def _cut(*cuts: int, group: int = 0, fragment: str = "0: a b") -> Memory:
    return Memory(cuts={fragment: {group: cuts}}, marks=dict.fromkeys(cuts, MARK))


def test_cuts_of_its_epochs_and_groups_are_accepted():
    check_memory(replace(MANIFEST, memory=_cut(2, 9, group=3)), 4, FRAGMENTS)


@pytest.mark.parametrize(
    "memory",
    [
        _cut(),
        _cut(3, 2),
        _cut(3, 3),
        _cut(-1),
        _cut(10),
        _cut(2, group=4),
        _cut(2, fragment="0: a c"),
        Memory(cuts={"0: a b": {0: (2,)}}),
        Memory(marks={2: Mark({"a": 1})}),
        Memory(rebuilt={StateId.of("ab"): {9: 1}}),
        Memory(rebuilt={StateId.of("ab"): {1: 10}}),
        Memory(statistics={"0: a b": GroupStatistics(b"1234", b"1234", b"1234")}),
    ],
)
def test_others_are_refused(memory):
    with pytest.raises(CheckpointError, match="cuts and statistics that its groups and epochs allow"):
        check_memory(replace(MANIFEST, memory=memory), 4, FRAGMENTS)
