"""Overlapping folders are refused, whatever paths they are given by."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from midstream.errors import OptionError
from midstream.storage.folder_overlap import check_folders, check_not_sources
from tests.mounts import mounted

SAME = "lateRows must be another folder than path"
INSIDE = "must be neither the checkpointLocation nor inside of it"
STAGED = "must not be inside of the folder _staged of"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with links into it: to what is there, to what is not there yet, and in a circle."""
    for name in ("out", "checkpoint/spark", "deep/er"):
        (tmp_path / name).mkdir(parents=True)
    links = {
        "link": "out",
        "later": "deep/new",
        "other": "deep",
        "state": "checkpoint",
        "inner": "checkpoint/spark/x",
        "circle": "circle",
    }
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


def isolated(root: Path, path: str | None, late: str | None, checkpoint: str | None = "checkpoint") -> None:
    check_folders(*(None if name is None else f"{root}/{name}" for name in (path, late, checkpoint)))


@pytest.mark.parametrize(
    ("path", "late", "checkpoint", "must"),
    [
        ("out", "out", "checkpoint", SAME),
        ("out", "link", "checkpoint", SAME),
        ("out", "deep/../out", "checkpoint", SAME),
        ("out", "other/../out/.", None, SAME),
        ("later", "other/new", None, SAME),
        ("deep/new/er", "later/er", None, SAME),
        ("circle/x", "circle/x", None, SAME),
        ("checkpoint", None, "checkpoint", f"path {INSIDE}"),
        ("state", None, "checkpoint", f"path {INSIDE}"),
        ("checkpoint/results", None, "state", f"path {INSIDE}"),
        ("out", "inner", "checkpoint", f"lateRows {INSIDE}"),
        ("out", "inner/late", "state", f"lateRows {INSIDE}"),
        ("out", "other/new/late", "later", f"lateRows {INSIDE}"),
        ("out", "link/_staged", None, f"lateRows {STAGED} path"),
        ("link/_staged/x", "out", None, f"path {STAGED} lateRows"),
    ],
)
def test_folders_in_each_others_way_are_refused_and_both_are_named(root, path, late, checkpoint, must):
    with pytest.raises(OptionError, match=must) as caught:
        isolated(root, path, late, checkpoint)
    inside = INSIDE in must
    named = {"checkpointLocation": checkpoint, must.split()[0]: late if must[0] == "l" else path}
    for option, name in (named if inside else {"path": path, "lateRows": late}).items():
        assert f"{option} {root}/{name}" in str(caught.value)
    assert "a folder of its own" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("path", "late", "checkpoint"),
    [
        ("out", "late", "checkpoint"),
        ("out", None, "out/_checkpoint"),
        ("link", "out/_late", "out/_checkpoint"),
        ("out", "later", "deep/new2"),
        ("deep/new/a", "deep/new/b", "deep/new/c"),
        ("checkpoint2", "checkpoin", "checkpoint"),
        ("out/_staged2", "out", "checkpoint"),
        ("out", None, None),
        (None, "late", "checkpoint"),
        (None, None, None),
    ],
)
def test_folders_of_their_own_are_fine(root, path, late, checkpoint):
    isolated(root, path, late, checkpoint)
    assert not (root / "late").exists()


def test_names_that_differ_in_case_are_one_folder_where_case_does_not_count(root, monkeypatch):
    real = Path.stat

    def stat(self, **more):
        """As a file system that ignores case would answer for what is below ``root``."""
        inside = self.is_relative_to(root.parent) and self.parts[: len(root.parts) - 1] == root.parts[:-1]
        names = self.parts[len(root.parts) - 1 :] if inside else ()
        found = root.parent
        for name in names:
            found /= next((p.name for p in found.iterdir() if p.name.lower() == name.lower()), name)
        return real(found if inside else self, **more)

    isolated(root, "new", "NEW")
    isolated(root, "out", "OUT")
    monkeypatch.setattr(Path, "stat", stat)
    for path, late in (("new", "NEW"), ("out", "OUT"), ("out/é", "Out/E\u0301")):
        with pytest.raises(OptionError, match=SAME):
            isolated(root, path, late)
    with pytest.raises(OptionError, match=INSIDE):
        isolated(root, "CHECKPOINT/x/y", None)
    isolated(root, "new", "NEWER")


@pytest.fixture
def mounted_twice(root: Path) -> Iterator[Path]:
    """A folder that is mounted a second time."""
    with mounted(root / "mounted", "--bind", str(root / "deep")):
        yield root


def test_a_folder_that_is_mounted_twice_is_one(mounted_twice):
    for path, late in (("deep", "mounted"), ("deep/er", "mounted/er"), ("deep/new/x", "mounted/new/x")):
        with pytest.raises(OptionError, match=SAME):
            isolated(mounted_twice, path, late)
    with pytest.raises(OptionError, match=INSIDE):
        isolated(mounted_twice, "deep/x/results", None, "mounted/x")
    isolated(mounted_twice, "deep/er", "mounted/new")


def test_what_nobody_may_look_into_is_compared_by_name(root, monkeypatch):
    real = Path.stat

    def closed(self, **more):
        if self.is_relative_to(root / "deep"):
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **more)

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(OptionError, match=SAME):
        isolated(root, "deep/er", "other/er")
    isolated(root, "deep/er", "deep/other")


def test_results_must_not_be_where_a_stream_looks_for_files(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    sources = {"a": [str(tmp_path / "other")], "b": [str(tmp_path / "in")]}
    for name, folder in (("path", "in"), ("lateRows", "in/late"), ("path", "link/x/y")):
        with pytest.raises(
            OptionError, match=rf"{name} must be neither .*, and stream b reads {tmp_path}/in"
        ):
            check_not_sources({"path": None, "lateRows": None, name: str(tmp_path / folder)}, sources)
    check_not_sources({"path": str(tmp_path / "out"), "lateRows": str(tmp_path)}, sources)
