"""JSON together with its digest, so that damage is detected before a file is used.

A digest detects damage, not forgery. So what is decoded is also validated against its schema, and JSON that
is nested too deeply is refused.
"""

from __future__ import annotations

import hashlib

import msgspec

from midstream.errors import CheckpointError

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors that decoding raises for bytes that are not valid."""

RESTORE = "restore the file, or start a new query with another checkpointLocation"


_DIGEST_AT = slice(len(b'{"sha256":"'), len(b'{"sha256":"') + 64)


def encode_with_digest(kind: str, body: bytes) -> bytes:
    """A body of JSON under the name of its kind, together with its digest."""
    return b'{"sha256":"%s","%s":%s}' % (digest(body).encode(), kind.encode(), body)


def has_digest(data: bytes) -> bool:
    """Whether a file begins like one with a digest."""
    return data.startswith(b'{"sha256":')


def digest_in(encoded: bytes) -> str:
    """The digest in what :func:`encode_with_digest` has given."""
    return encoded[_DIGEST_AT].decode()


def decode_with_digest(kind: str, data: bytes, name: str) -> bytes:
    """The body of a file; if its digest does not match, an error that names the file."""
    try:
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if set(parts) != {"sha256", kind}:
            raise CheckpointError(
                f"{name} must be a {kind} with its digest", got=", ".join(parts), hint=RESTORE
            )
        given_digest = msgspec.json.decode(parts["sha256"], type=str)
    except UNREADABLE as error:
        raise unreadable(name, error) from None
    body = bytes(parts[kind])
    if digest(body) != given_digest:
        raise CheckpointError(f"{name} must have its digest", got="another", hint=RESTORE)
    return body


def digest(body: bytes) -> str:
    """The digest of a body."""
    return hashlib.sha256(body).hexdigest()


def unreadable(name: str, error: Exception) -> CheckpointError:
    """The error for a file that cannot be decoded."""
    return CheckpointError(f"{name} must be readable", got=reason_unreadable(error), hint=RESTORE)


def reason_unreadable(error: Exception) -> str:
    """Why a file cannot be decoded, in words; the decoder's own if they are about the JSON."""
    match error:
        case RecursionError():
            return "JSON that is nested too deeply"
        case UnicodeDecodeError():
            return "bytes that are no text"
        case msgspec.MsgspecError():
            return str(error)
    return "JSON of another form"
