"""The identity of a state: the streams of its rows, and the migration that started it, if one did.

If streams live at sites, also the site where the rows are, and the stream whose new rows have found them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

_TEXT = re.compile(r"(\w+(?:,\w+)*)(?:\^(\w+))?(?::(\w[\w.-]*))?(?:@([1-9]\d*))?\Z")


class StateId(str):
    """The id of a state.

    It consists of the streams whose rows the state combines, in the query's order. If a migration started the
    state without rows, while another state of the same streams existed, it has the migration's number too.

    Rows at a *site* have its name. Rows on their way through the sites also have their *head*, the stream
    whose new rows have found the others; they are stored nowhere.

    A ``StateId`` is a string, ``orders,payments`` or ``orders,payments@3``, because columns of slices and
    keys in manifests are named by it. Only this class reads and writes that text.

    >>> StateId.of(["orders", "payments"]).started_by(3)
    'orders,payments@3'
    >>> StateId.of(["orders"], site="paris")
    'orders:paris'
    >>> StateId.of(["orders", "payments"], head="payments", site="paris")
    'orders,payments^payments:paris'
    """

    __slots__ = ()

    @staticmethod
    def of(streams: Iterable[str], migration: int = 0, *, head: str = "", site: str = "") -> StateId:
        """The id from its parts; ``migration`` is the number of the one that started it, 0 if none did."""
        parts = (",".join(streams), head and f"^{head}", site and f":{site}", migration and f"@{migration}")
        return StateId("".join(part for part in parts if part))

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(text: str) -> StateId:
        """The id from its text; a ``ValueError`` if the text is not one.

        Each slice in a manifest has the text of a state, and there are few states.
        """
        if not _TEXT.match(text):
            raise ValueError(f"{text!r} is not the id of a state")
        return StateId(text)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose rows the state combines."""
        return _parts(self).streams

    @property
    def migration(self) -> int:
        """The number of the migration that started the state; 0 if none did."""
        return _parts(self).migration

    @property
    def site(self) -> str:
        """Where the rows are; empty if streams have no sites."""
        return _parts(self).site

    @property
    def is_base(self) -> bool:
        """Whether it is a base state, which holds the rows of one stream."""
        return len(self.streams) == 1

    @property
    def label(self) -> str:
        """The streams, and where their rows are, as explanations and progress show them."""
        return self.partition("@")[0]

    def started_by(self, migration: int) -> StateId:
        """The id of the same state if a migration starts it without rows."""
        return StateId(f"{self.label}@{migration}")


class _Parts(NamedTuple):
    streams: tuple[str, ...]
    site: str
    migration: int


@lru_cache(maxsize=4096)
def _parts(text: str) -> _Parts:
    rows, _, migration = text.partition("@")
    combined, _, site = rows.partition(":")
    streams, _, _head = combined.partition("^")
    return _Parts(tuple(streams.split(",")), site, int(migration or 0))


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
