"""What a box has stored of a stream, for another one: also keys of which only hashes are stored."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.hashing import hash_values, values_of_hashes

TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.timestamp("us"): st.integers(-(2**63), 2**63 - 1),
    pa.timestamp("us", "UTC"): st.integers(-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@given(data=st.data())
def test_values_are_computed_from_their_hashes(dtype, data):
    drawn = data.draw(st.lists(TYPES[dtype], min_size=1, max_size=20))
    bits = pa.int32() if dtype == pa.date32() else pa.int64()
    plain = dtype in (pa.float64(), pa.bool_())
    values = pa.array(drawn, dtype) if plain else pa.array(drawn, bits).view(dtype)
    got = values_of_hashes(hash_values(values), dtype)
    assert got.type == dtype
    if dtype == pa.float64():
        # Of the two zeros there is one.
        assert np.array_equal(got.to_numpy(), values.to_numpy() + 0.0)
    else:
        assert got.equals(values)
