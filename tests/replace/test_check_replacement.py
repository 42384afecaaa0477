"""Which definitions a running query may not get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.errors import QueryError
from midstream.inline import InlineJoin
from tests.sites.adaptive_case import sited_query


@pytest.mark.parametrize("side", ["before", "after"])
def test_streams_that_live_at_sites_are_refused(side):
    sited = sited_query()
    plain = replace(sited, topology=None)
    running, new = (sited, plain) if side == "before" else (plain, sited)
    join = InlineJoin(running)
    with pytest.raises(QueryError, match=r"no streams that live at sites.*got frankfurt"):
        join.replace(new)
    assert join.manifest.replacement is None
