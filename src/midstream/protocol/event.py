"""What all events have in common."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

Severity = Literal["info", "warning"]
"""A ``warning`` is for events that may call for action, or end one that did."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="event", rename="camel"):
    """Something that happened in an epoch."""

    severity: ClassVar[Severity] = "info"
    template: ClassVar[str]
    """The text for people, with the names of fields in braces."""

    batch_id: int
    """The number of the epoch."""

    @property
    def type(self) -> str:
        """The name of the kind of event in the JSON form, such as ``stream-idle``."""
        return str(self.__struct_config__.tag)

    @property
    def message(self) -> str:
        """The event as a text for people; the number of the epoch is not in it."""
        return self.template.format_map(msgspec.structs.asdict(self))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: type, fields, severity and message; keys are in camel case."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {**fields, "severity": self.severity, "message": self.message}


def pluralized(number: int, noun: str) -> str:
    """A number of things, such as ``1 row`` and ``2 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
