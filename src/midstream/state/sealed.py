"""Sealed files: JSON together with its digest, so that damage is noticed before anything is believed.

A digest tells damage, not who wrote the file. What is decoded is checked against the form that it must
have, and text that is nested without end is refused like any other nonsense.
"""

from __future__ import annotations

import hashlib

import msgspec

from midstream.errors import CheckpointError

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are not what they should be."""

RESTORE = "restore the file, or start a new query with another checkpointLocation"


def seal(kind: str, body: bytes) -> bytes:
    """A body of JSON under the name of what it is, together with its digest."""
    return b'{"sha256":"%s","%s":%s}' % (digest(body).encode(), kind.encode(), body)


def unseal(kind: str, data: bytes, name: str) -> bytes:
    """The body of a sealed file; an error that names the file if it is not what was sealed."""
    try:
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if set(parts) != {"sha256", kind}:
            raise CheckpointError(f"{name} must be a sealed {kind}", got=", ".join(parts), hint=RESTORE)
        wanted = msgspec.json.decode(parts["sha256"], type=str)
    except UNREADABLE as error:
        raise unreadable(name, error) from None
    body = bytes(parts[kind])
    if digest(body) != wanted:
        raise CheckpointError(f"{name} must have its digest", got="another", hint=RESTORE)
    return body


def digest(body: bytes) -> str:
    """The digest of a body."""
    return hashlib.sha256(body).hexdigest()


def unreadable(name: str, error: Exception) -> CheckpointError:
    """The error for a file that cannot be decoded."""
    got = "JSON that is nested too deeply" if isinstance(error, RecursionError) else error
    return CheckpointError(f"{name} must be readable", got=got, hint=RESTORE)
