"""Manifests that were tampered with, with matching digests: refused, and nothing outside is touched."""

from typing import Any

import pytest

from midstream.errors import CheckpointError
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from tests.storage.tampering import Change, go_on, tamper


def _retire(name: str) -> Change:
    # Old enough to be deleted after the next commit.
    return lambda m: m["retired"].append({"name": name, "epoch": -7})


def _name(name: str) -> Change:
    return lambda m: [slice_.update(name=name) for slice_ in m["slices"]]


def _nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


MIGRATION = {
    "number": 1,
    "old_plan": "a b c",
    "new_plan": "a (b c)",
    "strategy": "hybrid",
    "background": True,
    "isolated": False,
    "start_epoch": 1,
    "state_ids": {},
    "handover": {},
    "latest_times": {},
}

TAMPERED: dict[str, Change] = {
    "a slice above": _name("../../outside"),
    "a slice elsewhere": _name("/etc/passwd"),
    "a slice with a zero": _name("x\0.arrow"),
    "a file to delete above": _retire("../../outside"),
    "a file to delete elsewhere": _retire("/etc/passwd"),
    "a slice of another stream": lambda m: m["slices"][0]["owner"].update(state="a,z"),
    "a slice of no partition": lambda m: m["slices"][0]["owner"].update(partition=99),
    "a slice with too few times": lambda m: m["slices"][0].update(latest=[]),
    "no streams": lambda m: m.update(streams={}),
    "another plan": lambda m: m.update(plan="(a b) (c z)"),
    "a plan that is none": lambda m: m.update(plan="__import__('os')"),
    "no options": lambda m: m["definition"].pop("options"),
    "too many partitions": lambda m: m["definition"]["options"].update(partitions=10**9, groups=10**9),
    "partitions as text": lambda m: m["definition"]["options"].update(partitions="2"),
    "a query that is none": lambda m: m.update(definition={}),
    "columns that are none": lambda m: m["definition"]["streams"]["a"].update(columns=[1]),
    "another epoch": lambda m: m.update(epoch=7),
    "a slice of an epoch to come": lambda m: m["slices"][0].update(last_epoch=m["epoch"] + 1),
    "a slice of an epoch far ahead": lambda m: m["slices"][0].update(last_epoch=10**6),
    "a slice that ends before it begins": lambda m: m["slices"][0].update(first_epoch=2, last_epoch=1),
    "a slice from before the first epoch": lambda m: m["slices"][0].update(first_epoch=-1),
    "a slice from long before": lambda m: m["slices"][0].update(first_epoch=-(2**63), last_epoch=-(2**62)),
    "a plan of ten thousand nodes": lambda m: m.update(plan="(" * 10_000 + "a" + " b)" * 10_000 + " c"),
    "a migration to ten thousand nodes": lambda m: m.update(
        migration={**MIGRATION, "new_plan": "(" * 10_000 + "a" + " b)" * 10_000 + " c"}
    ),
    "ten thousand parentheses": lambda m: m.update(plan="(" * 10_000),
    "a query that is nested deeply": lambda m: m["definition"].update(on=_nested(400)),
}

ONLY_A_START_REFUSES = {
    "a slice with too few times",
    "no streams",
    "another plan",
    "a plan that is none",
    "a slice of an epoch to come",
    "a slice of an epoch far ahead",
    "a slice that ends before it begins",
    "a slice from before the first epoch",
    "a slice from long before",
    "a plan of ten thousand nodes",
    "a migration to ten thousand nodes",
    "ten thousand parentheses",
}
"""What fsck says nothing of: it compares files and what they name, and leaves plans and epochs to a start."""


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_manifest_is_refused(checkpoint, what):
    (checkpoint.parent / "outside").write_text("mine")
    tamper(checkpoint, TAMPERED[what])
    # Without an earlier manifest that the query could go on from instead.
    for path in sorted((checkpoint / "manifests").glob("*.json"))[:-1]:
        path.unlink()
    with pytest.raises(CheckpointError):
        go_on(checkpoint)
    assert (checkpoint.parent / "outside").read_text() == "mine"
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == ["checkpoint", "outside"]


@pytest.mark.parametrize("what", [what for what in TAMPERED if "delete" not in what])
def test_fsck_survives_a_tampered_manifest_and_finds_all_but_plans_and_epochs(checkpoint, what):
    tamper(checkpoint, TAMPERED[what])
    assert bool(fsck(LocalStore(str(checkpoint))).problems) == (what not in ONLY_A_START_REFUSES)
