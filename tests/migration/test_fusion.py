"""Fragments of two plans are fused as required, or it is said that they cannot be."""

from __future__ import annotations

import pytest

from midstream.errors import InternalError
from midstream.migration.fusion import FusionConstraints, can_fuse, fused_fragments
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from tests.helpers import small_query

LAYOUT = build_layout(small_query(["a.k = b.k", "b.j = c.j"], "abc"), parse_plan("(a b) c", "abc"))
"""The second fragment gets the rows of the first."""


def test_fragments_run_after_those_that_send_them_rows():
    fused = fused_fragments(LAYOUT, LAYOUT, FusionConstraints(pairs=((0, 0),)))
    assert [(f.stage, len(f.old), len(f.new)) for f in fused] == [(0, 1, 1), (1, 1, 1)]


def test_fragments_that_would_wait_for_each_other_are_refused():
    cycle = FusionConstraints(pairs=((0, 1), (1, 0)))
    assert not can_fuse(LAYOUT, LAYOUT, cycle)
    with pytest.raises(InternalError, match=r"without a cycle; got \(a b\) c and \(a b\) c"):
        fused_fragments(LAYOUT, LAYOUT, cycle)
