"""Counting the output of a fragment by partition group, for the statistics of groups."""

from __future__ import annotations

import numpy as np

from midstream.engine.group_counts import count_flows
from midstream.engine.hashing import hash_key
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.program import Program
from midstream.plan.layout import Fragment, Node

# Rows of a node in an epoch that are looked at.
_COUNTED_ROWS = 1024


def count_output(program: Program, fragment: Fragment, node: Node, rows: IndexRows, joiner: Joiner) -> bytes:
    """From which groups, and to which, rows leave the fragment, by a sample of them.

    Nothing if they stay in it, if there is no budget of memory, or during a migration.
    """
    receiver = program.layout.fragment_of_input.get(node.id)
    leaves = node.id == program.layout.root or receiver is not None
    counts = program.memory is not None and program.memory.counts_groups
    if not counts or not leaves or not fragment.key or program.handover is not None:
        return b""
    stride = 1 + len(rows) // _COUNTED_ROWS
    sample = rows if stride == 1 else rows.take(np.arange(0, len(rows), stride))
    receivers = None
    if receiver is not None:
        receivers = hash_key([joiner.key_values(sample, c) for c in receiver.key], len(sample))
    return count_flows(sample.hashes, receivers, program.places.groups, stride)
