"""The display of the running demo, on a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from midstream.demo.show import Epoch, View, epoch_table


def progress(number):
    return {
        "batchId": number,
        "watermark": {"a": "2026-03-02T08:29:59.000Z", "b": "2026-03-02T08:09:59.000Z", "c": None},
        "numInputRows": 104_492,
        "numLateRows": 300 + number,
        "numNullKeyRows": 40,
        "numOutputRows": 19_851,
        "state": {"{a}": {"rows": 1_000_000}, "{a,b}": {"rows": 234_567}},
        "stateBytesActive": 118_700_000,
        "stateBytesSpilled": 23_400_000,
        "memory": {"owedGroups": 56},
        "durationMs": {"total": 1_045},
        "events": [
            {"type": "migration-started", "message": "migration 1 started"},
            {"type": "state-spilled", "message": "spilled 9 groups"},
            {"type": "stream-idle", "message": "stream a is idle"},
        ]
        if number == 1
        else [],
    }


def printed(renderable, width):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return out.getvalue()


def test_an_epoch_is_what_its_progress_says():
    epoch = Epoch.of(progress(3))
    assert epoch == Epoch(3, "08:09", 104_492, 303, 40, 19_851, 1_234_567, 118_700_000, 23_400_000, 56, 1_045)
    assert epoch.speed == 99_992


def test_an_epoch_without_any_time_yet_has_no_clock():
    assert Epoch.of({**progress(0), "watermark": {"a": None}}).clock == ""


def test_elsewhere_there_is_a_line_per_epoch_and_each_once():
    out = io.StringIO()
    view = View(Console(file=out, width=40, force_terminal=False, color_system=None))
    with view.running():
        view.doing("joining")
        for number in (0, 0, 1):
            view.epoch(progress(number))
    lines = out.getvalue().splitlines()
    assert lines[0] == "joining"
    shown = [["epoch", "0"], ["epoch", "1"], ["migration", "1"], ["spilled", "9"]]
    assert [line.split()[:2] for line in lines[1:]] == shown
    assert "19,851 results" in lines[1]
    assert "spilled" not in lines[1]


def test_with_a_budget_a_line_says_what_is_spilled_and_owed():
    out = io.StringIO()
    view = View(Console(file=out, width=40, force_terminal=False, color_system=None), with_memory=True)
    with view.running():
        view.epoch(progress(0))
    assert "118.7 MB    23.4 MB spilled    56 groups owe" in out.getvalue()


def test_on_a_terminal_there_is_a_table():
    out = io.StringIO()
    view = View(Console(file=out, width=120, height=30, force_terminal=True, color_system=None))
    with view.running():
        view.doing("joining")
        view.epoch(progress(0))
    shown = out.getvalue()
    assert "watermark" in shown
    assert "19,851" in shown
    assert "rows/s" in shown
    assert "spilled" not in shown


def test_with_a_budget_the_table_has_what_is_active_and_spilled_and_the_last_events():
    out = io.StringIO()
    console = Console(file=out, width=120, height=60, force_terminal=True, color_system=None)
    view = View(console, with_memory=True)
    with view.running():
        for number in range(3):
            view.epoch(progress(number))
        view.notes += [f"epoch 3: note {number}" for number in range(8)]
    shown = out.getvalue()
    assert "owing" in shown
    assert "23.4 MB" in shown
    assert "rows/s" not in shown
    assert [number for number in range(8) if f"note {number}" in shown] == [2, 3, 4, 5, 6, 7]


def test_the_table_has_totals_of_all_epochs_and_rows_of_the_last():
    epochs = [Epoch.of(progress(number)) for number in range(30)]
    shown = printed(epoch_table(epochs, room=5, width=120), 120)
    assert f"{30 * 104_492:,}" in shown
    assert " 25 " in shown
    assert " 24 " not in shown


@pytest.mark.parametrize("with_memory", [False, True])
@pytest.mark.parametrize("width", [80, 104, 200])
def test_the_table_fits_its_terminal(width, with_memory):
    epochs = [Epoch.of(progress(100))]
    shown = printed(epoch_table(epochs, room=5, width=width, with_memory=with_memory), width)
    assert "…" not in shown
    assert ("━" in shown) == (width > 80)
    assert ("╌" in shown) == (width > 80)
