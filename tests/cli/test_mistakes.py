"""Mistakes in what commands are given: told in one line, with an exit code of their own."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from midstream.cli.main import app
from midstream.errors import MidstreamError
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from tests.plain_errors import assert_plain
from tests.small_case import make_checkpoint


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def checkpoint(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "checkpoint")


COMMANDS = {
    "fsck": ["fsck", "{none}"],
    "fsck --json": ["fsck", "{none}", "--json"],
    "gc": ["gc", "{none}"],
    "watermark": ["watermark", "{none}"],
    "fsck of something else": ["fsck", "{other}"],
    "fsck of a password": ["fsck", "s3://me:secret@bucket/x"],
    "fsck of a file": ["fsck", "{other}/file"],
    "a stream without a time": ["watermark", "{made}", "--stream", "a"],
    "a time without a stream": ["watermark", "{made}", "--to", "2026-01-01T00:00:00Z"],
    "no time": ["watermark", "{made}", "--stream", "a", "--to", "yesterday"],
    "no stream": ["watermark", "{made}", "--stream", "z", "--to", "2020-01-01T00:00:00Z"],
    "forward": ["watermark", "{made}", "--stream", "a", "--to", "2030-01-01T00:00:00Z"],
    "too far back": ["watermark", "{made}", "--stream", "a", "--to", "1980-01-01T00:00:00Z"],
    "a folder for the demo": ["demo", "--output", "{other}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_what_is_wrong_in_a_line(checkpoint, tmp_path, name):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    places = {"none": tmp_path / "none", "other": other, "made": checkpoint}
    arguments = [argument.format(**places) for argument in COMMANDS[name]]
    done = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "FORCE_COLOR": None})
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.output
    must, _, rest = done.stderr.removeprefix("error: ").strip().partition("; got ")
    got, _, hint = rest.partition(". Hint: ")
    assert_plain(MidstreamError(must, got=got or None, hint=hint or None))
    missing = name in ("fsck", "fsck --json", "gc", "watermark", "fsck of something else")
    assert done.exit_code == (7 if missing else 4 if name == "fsck of a file" else 3)
    if "--json" in arguments:
        told = json.loads(done.stdout)
        assert (told["version"], told["error"]["kind"]) == (1, "NoCheckpointError")
        assert told["error"]["got"] == f"{tmp_path / 'none'}, where there is nothing"


def test_a_checkpoint_without_a_committed_epoch_is_one(tmp_path):
    seize_lease(LocalStore(str(tmp_path)), "test").release()
    done = CliRunner().invoke(app, ["fsck", str(tmp_path)])
    assert (done.exit_code, "no epoch is committed" in done.stdout) == (0, True)
