import json

import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError
from midstream.plan.state_id import StateId
from midstream.state.json_with_digest import digest_in
from midstream.state.manifest import (
    FORMAT,
    Manifest,
    OutputFile,
    Retired,
    StreamProgress,
    decode_manifest,
    digest_of,
    encode_manifest,
    manifest_json,
)
from midstream.state.migration import HandoverEntry, Migration, RebuildProgress
from midstream.state.routing_table import RoutingTable
from midstream.state.slices import Slice, SliceOwner

MIGRATION = Migration(
    number=3,
    old_plan="a b",
    new_plan="b a",
    strategy="hybrid",
    background=True,
    isolated=False,
    start_epoch=2,
    state_ids={StateId("b"): StateId("b@3")},
    handover={StateId("a,b"): (HandoverEntry(StateId("b@3"), {"b": 2}),)},
    latest_times={2: {"a": None, "b": 5}},
    rebuilding={StateId("b@3"): RebuildProgress("b", 1)},
    completed=(StateId("a@3"),),
)
MANIFEST = Manifest(
    routings=(RoutingTable(0, 3),),
    spark_query="s",
    id="q",
    epoch=3,
    definition={"streams": {"a": {"time": "a.t"}}, "on": ["a.k = b.k"]},
    plan="a b",
    initial_plan="b a",
    state_ids={StateId("a"): StateId("a@2")},
    migration=MIGRATION,
    ended_migration=MIGRATION,
    migrations=3,
    streams={
        "a": StreamProgress(latest=5, watermark=4, last_active=5, rows=1, late=2, null_time=3, null_key=4),
        "b": StreamProgress(),
    },
    slices=(Slice(SliceOwner("index", StateId("a,b"), (0, 1), 2), 0, 3, 4, 9, (5, -6), "x.arrow", 7, "00"),),
    retired=(Retired("y.arrow", 2),),
    outputs=(OutputFile("results", "s", "p", 1),),
    results=12,
    previous="abc",
)


def with_digest(body: bytes) -> bytes:
    import hashlib

    return b'{"sha256":"%s","manifest":%s}' % (hashlib.sha256(body).hexdigest().encode(), body)


def test_a_manifest_can_be_encoded_and_decoded():
    assert decode_manifest(encode_manifest(MANIFEST), "m") == (MANIFEST, digest_of(MANIFEST))
    assert encode_manifest(MANIFEST) == with_digest(manifest_json(MANIFEST))
    assert json.loads(encode_manifest(MANIFEST))["sha256"] == digest_of(MANIFEST)
    assert digest_in(encode_manifest(MANIFEST)) == digest_of(MANIFEST)


def test_a_different_manifest_has_a_different_digest():
    assert digest_of(replace(MANIFEST, epoch=4)) != digest_of(MANIFEST)


def test_any_flipped_bit_is_detected():
    data = encode_manifest(MANIFEST)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError, match="manifest m must"):
            decode_manifest(bytes(damaged), "m")


def test_any_truncation_is_detected():
    data = encode_manifest(MANIFEST)
    for length in range(len(data)):
        with pytest.raises(CheckpointError, match="manifest m must"):
            decode_manifest(data[:length], "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": FORMAT + 1}, "must have a format from 3 to 8; got 9. Hint: upgrade Midstream"),
        ({"format": 0}, "must have a format from 3 to 8; got 0. Hint: restore the file"),
        ({"surprise": 1}, "must be readable; got .*unknown field `surprise`"),
        ({"epoch": "3"}, "must be readable; got Expected `int`"),
        ({"slices": [{"name": "../x"}]}, "must be readable"),
    ],
)
def test_a_manifest_with_its_digest_that_does_not_match_the_schema_is_refused(change, message):
    body = json.loads(manifest_json(MANIFEST)) | change
    with pytest.raises(CheckpointError, match=message):
        decode_manifest(with_digest(json.dumps(body).encode()), "m")


def test_a_missing_field_is_refused():
    body = json.loads(manifest_json(MANIFEST))
    del body["plan"]
    with pytest.raises(CheckpointError, match="missing required field `plan`"):
        decode_manifest(with_digest(json.dumps(body).encode()), "m")


@pytest.mark.parametrize(
    "deep", [b"[" * 200_000 + b"]" * 200_000, b'{"a":' * 200_000 + b"1" + b"}" * 200_000]
)
def test_a_manifest_that_is_nested_too_deeply_is_refused(deep):
    for data in (deep, with_digest(deep), with_digest(b'{"format":5,"definition":{"x":%s}}' % deep)):
        with pytest.raises(CheckpointError, match="manifest m must be"):
            decode_manifest(data, "m")
    with pytest.raises(CheckpointError, match="got JSON that is nested too deeply"):
        decode_manifest(with_digest(b'{"format":5,"definition":{"x":%s}}' % deep), "m")
