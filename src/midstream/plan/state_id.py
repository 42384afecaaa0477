"""The identity of a state: the streams of its rows, and the migration that started it, if one did."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_TEXT = re.compile(r"(\w+(?:,\w+)*)(?:@([1-9]\d*))?\Z")


class StateId(str):
    """The id of a state.

    It consists of the streams whose rows the state combines, in the query's order. If a migration started the
    state without rows, while another state of the same streams existed, it has the migration's number too.

    A ``StateId`` is a string, ``orders,payments`` or ``orders,payments@3``, because columns of slices and
    keys in manifests are named by it. Only this class reads and writes that text.

    >>> StateId.of(["orders", "payments"]).started_by(3)
    'orders,payments@3'
    """

    __slots__ = ()

    @staticmethod
    def of(streams: Iterable[str], migration: int = 0) -> StateId:
        """The id from its parts; ``migration`` is the number of the one that started it, 0 if none did."""
        return StateId(",".join(streams) + (f"@{migration}" if migration else ""))

    @staticmethod
    def parse(text: str) -> StateId:
        """The id from its text; a ``ValueError`` if the text is not one."""
        if not _TEXT.match(text):
            raise ValueError(f"{text!r} is not the id of a state")
        return StateId(text)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose rows the state combines."""
        return _parts(self)[0]

    @property
    def migration(self) -> int:
        """The number of the migration that started the state; 0 if none did."""
        return _parts(self)[1]

    @property
    def is_base(self) -> bool:
        """Whether it is a base state, which holds the rows of one stream."""
        return len(self.streams) == 1

    @property
    def label(self) -> str:
        """The streams, as explanations and progress show them."""
        return ",".join(self.streams)

    def started_by(self, migration: int) -> StateId:
        """The id of the state of the same streams that a migration starts without rows."""
        return StateId.of(self.streams, migration)


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[tuple[str, ...], int]:
    streams, _, migration = text.partition("@")
    return tuple(streams.split(",")), int(migration or 0)


def encode_state_id(value: Any) -> str:
    """The text of an id, as a hook for msgspec's encoders."""
    if isinstance(value, StateId):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no plain form")


def decode_state_id(kind: type, value: Any) -> Any:
    """An id from its text, as a hook for msgspec's decoders."""
    if kind is StateId and isinstance(value, str):
        return StateId.parse(value)
    raise NotImplementedError(f"{kind.__name__} has no plain form")
