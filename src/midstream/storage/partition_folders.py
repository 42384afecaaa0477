"""Folders of a partitioned table, ``day=2026-03-01/item=tea``, named as Spark names them.

The values are in the names of the folders, and no longer in the files. A reader puts both together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from midstream.engine.arrays import as_column
from midstream.errors import StreamError
from midstream.storage.iso_text import date_texts

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name that stands for null, and for empty text, in all tables that are partitioned like this."""
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_FOLDER = re.compile(r"[^/\0=]+=[^/\0=]+\Z")
_MAX_BYTES = 255
"""What file systems allow as the name of a folder."""


def can_be_folder(kind: pa.DataType) -> bool:
    """Whether values of a type have one text, the same as in Spark, from which a reader gets them back."""
    tests = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_date32)
    return any(test(kind) for test in tests)


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder of one value."""
    return _FOLDER.match(name) is not None


def by_folder(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, in their order, without the columns that are in its name.

    Without rows there is one folder, that of nulls, so that a reader finds the columns of the table.
    """
    rest = rows.drop_columns(list(columns))
    if rows.num_rows == 0:
        yield "/".join(f"{_escape(name)}={NULL}" for name in columns), rest
        return
    names = [_folder_names(name, rows.column(name)) for name in columns]
    encoded = pc.binary_join_element_wise(*names, "/").dictionary_encode()
    numbers = encoded.indices.to_numpy()
    sorted_rows = rest.take(as_column(np.argsort(numbers, kind="stable")))
    begin = 0
    for folder, count in zip(encoded.dictionary.to_pylist(), np.bincount(numbers).tolist(), strict=True):
        yield folder, sorted_rows.slice(begin, count)
        begin += count


def _folder_names(name: str, column: pa.ChunkedArray) -> pa.Array:
    """For each row the name of its folder: every distinct value is escaped once."""
    values = column.combine_chunks().dictionary_encode()
    folders = [f"{_escape(name)}={_escape(text or '') or NULL}" for text in _texts(values.dictionary)]
    for folder in folders:
        if len(folder.encode()) > _MAX_BYTES:
            raise StreamError(
                f"the name of a folder of {name} must have at most {_MAX_BYTES} bytes",
                got=len(folder.encode()),
                hint="partition by a shorter column, which the DataFrame of the stream can have",
            )
    null = pa.scalar(f"{_escape(name)}={NULL}")
    return pc.fill_null(pa.array(folders, pa.string()).take(values.indices), null)


def _texts(values: pa.Array) -> list[str | None]:
    if types.is_date32(values.type):
        return date_texts(pl.Series(pl.from_arrow(values.view(pa.int32()))).to_numpy()).to_list()
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    return texts


def _escape(text: str) -> str:
    """Text as part of a name: what file systems or readers take for something else is in hexadecimal."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
