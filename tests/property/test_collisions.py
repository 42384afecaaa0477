"""Hashes only find candidates: when they collide, results stay right."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from midstream.engine import encode, hashing, joiner, send
from midstream.inline import InlineJoin
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import cases


def colliding(columns, rows):
    """The worst possible hashes: the same for every key for which hashes are not one to one."""
    exact = len(columns) == 1 and not (
        pa.types.is_string(columns[0].type)
        or pa.types.is_binary(columns[0].type)
        or pa.types.is_decimal(columns[0].type)
    )
    return hashing.hash_key(columns, rows) if exact else np.zeros(rows, np.uint64)


@given(cases(max_streams=4))
def test_results_do_not_depend_on_hashes_being_unique(case):
    with pytest.MonkeyPatch.context() as patch:
        for module in (encode, joiner, send):
            patch.setattr(module, "hash_key", colliding)
        join = InlineJoin(case.query, case.plan, settings=case.settings)
        results = pa.concat_tables([join.run_epoch(epoch) for epoch in case.epochs])
    tables = accept(case.query, case.epochs, case.settings.idle_timeout).tables(case.query)
    assert_same_rows(results, batch_join(case.query, tables))
