from dataclasses import replace as replace_field

import pytest
from msgspec.structs import replace

from midstream.engine.program import StreamCounts
from midstream.errors import CheckpointError
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.protocol.coordinator import RETIRED_KEPT, Coordinator, deletable_slices, still_holds
from midstream.protocol.intent import Intent
from midstream.protocol.query_terms import describe_outputs
from midstream.protocol.report import Report, add_reports, encode_report
from midstream.protocol.settings import Settings, check_same_definition
from midstream.state.manifest import Retired, StreamProgress
from midstream.state.slices import Slice, SliceOwner
from tests.helpers import small_query

QUERY = small_query(["a.k = b.k"], default_window=10, select=["a.v", "b.k", "b.v"])
SETTINGS = Settings(1, 4)
NOW = 1_700_000_000_000_000
COORDINATOR = Coordinator(QUERY, SETTINGS)
FIRST = COORDINATOR.initial_manifest("q", parse_plan("a b", QUERY.names))


def make_slice(name: str, epoch: int = 0, latest: int = 0) -> Slice:
    return Slice(SliceOwner("index", StateId("a"), (0,), 0), epoch, epoch, 1, 1, (latest,), name)


def commit(manifest, *slices, replaced=(), counts=None):
    intent = intend(manifest)
    program = COORDINATOR.program(manifest, intent)
    report = Report(slices=slices, replaced=replaced, counts=counts or {}, results=2)
    return COORDINATOR.commit(manifest, intent, program, report)


def intend(manifest, **changes):
    return Intent(manifest.id, manifest.epoch + 1, NOW, replace_field(SETTINGS, **changes))


def test_a_commit_adds_what_is_new():
    one = commit(FIRST, make_slice("x"), counts={"a": StreamCounts(accepted=1, latest=5)})
    two = commit(one, make_slice("y", 1))
    assert (two.epoch, two.results) == (1, 4)
    assert [s.name for s in two.slices] == ["x", "y"]
    assert two.streams["a"].latest == 5
    assert two.id == FIRST.id


def test_merged_slices_retire_and_are_expendable_later():
    one = commit(FIRST, make_slice("x"))
    two = commit(one, make_slice("xy"), replaced=(make_slice("x"),))
    assert two.retired == (Retired("x", 1),)
    before, after = one, two
    for _ in range(RETIRED_KEPT):
        assert deletable_slices(before, after) == []
        before, after = after, commit(after)
    assert deletable_slices(before, after) == ["x"]
    assert after.retired == ()


def test_a_slice_of_which_nothing_is_live_is_not_read_again_and_retires():
    one = commit(FIRST, make_slice("x", latest=89), make_slice("y", latest=90))
    one = replace(one, streams={**one.streams, "b": StreamProgress(latest=100, watermark=100)})
    program = COORDINATOR.program(one, intend(one))
    assert [s.name for owned in program.slices.values() for s in owned] == ["y"]
    two = commit(one)
    assert ([s.name for s in two.slices], [r.name for r in two.retired]) == (["y"], ["x"])


def test_a_name_that_is_used_again_is_not_expendable():
    before = replace(FIRST, retired=(Retired("x", 0), Retired("y", 0)))
    assert deletable_slices(before, replace(FIRST, slices=(make_slice("x"),))) == ["y"]


def test_the_same_facts_give_the_same_manifest():
    assert commit(FIRST, make_slice("x")) == commit(FIRST, make_slice("x"))


def test_reports_add_up():
    a = Report(
        slices=(make_slice("x"),),
        replaced=(make_slice("m"),),
        counts={"a": StreamCounts(accepted=1, late=2, null_time=3, null_key=4, latest=5)},
        results=1,
        millis={"join": 3.0},
    )
    b = Report(
        counts={"a": StreamCounts(accepted=1, latest=9), "b": StreamCounts(late=1)},
        results=2,
        millis={"join": 1.0},
    )
    total = add_reports([encode_report(a), encode_report(b)])
    assert total.counts == {
        "a": StreamCounts(accepted=2, late=2, null_time=3, null_key=4, latest=9),
        "b": StreamCounts(late=1),
    }
    assert (total.results, total.replaced, total.millis, len(total.slices)) == (
        3,
        a.replaced,
        {"join": 3.0},
        1,
    )
    assert total.counts["a"].rows == 11


@pytest.mark.parametrize(
    ("query", "settings", "message"),
    [
        (small_query(["a.k = b.k"]), SETTINGS, r"must keep one: a, b had '10 microseconds'; got none"),
        (small_query(["a.k = b.j"], default_window=10), SETTINGS, "on was"),
        (
            small_query(["a.k = b.k"], default_window=10, select=["b.j"]),
            SETTINGS,
            r"must select columns that its state has: a\.v, b\.k, b\.v; got b\.j",
        ),
        (
            small_query(["a.k = b.k"], default_window=10, select=["b.k AS a_v"]),
            SETTINGS,
            "must keep its type as long as it keeps its name: a_v was string; got b.k of type bigint",
        ),
        (
            small_query(["a.k = b.k", "b.k = c.k"], "abc"),
            SETTINGS,
            "the streams were a, b; got a, b, c. Hint: write it as it was, let it replace the old one",
        ),
        (QUERY, Settings(1, 8), "options.groups was 4; got 8"),
    ],
)
def test_a_restart_must_ask_the_same(query, settings, message):
    with pytest.raises(CheckpointError, match=message):
        check_same_definition(FIRST, query, settings)


def test_a_restart_that_asks_the_same_may_go_on():
    assert check_same_definition(FIRST, QUERY, Settings(1, 4)) == QUERY
    assert check_same_definition(FIRST, QUERY, Settings(3, 4)) == QUERY


def test_a_restart_on_other_terms_goes_on_with_what_the_states_keep():
    other = small_query(["a.k = b.k"], default_window=11, lateness=5, select=["b.k AS `x AS y`", "a.v"])
    resumed = check_same_definition(FIRST, other, SETTINGS)
    assert resumed.kept == QUERY.outputs
    assert resumed == replace_field(other, kept=QUERY.outputs)


def test_a_name_keeps_its_type_also_if_results_lacked_it_in_between():
    selected = ["a.v AS X", "a.v AS y"], ["b.k AS z", "b.v AS y"], ["a.v AS x"]
    manifest, before = FIRST, [[], ["a.v AS X"], ["b.k AS z", "b.v AS y"]]
    for select, earlier in zip(selected, before, strict=True):
        query = small_query(["a.k = b.k"], default_window=10, select=select)
        coordinator = Coordinator(check_same_definition(manifest, query, SETTINGS), SETTINGS)
        intent = Intent(manifest.id, manifest.epoch + 1, NOW, SETTINGS, coordinator.next_terms(manifest))
        program = coordinator.program(manifest, intent)
        manifest = coordinator.commit(manifest, intent, program, Report())
        assert [
            text for text in manifest.earlier_outputs if text not in describe_outputs(QUERY.outputs)
        ] == earlier
    for name, was in {"x": "string", "Y": "string", "Z": "bigint", "a_v": "string"}.items():
        other = small_query(
            ["a.k = b.k"], default_window=10, select=[f"{'b.k' if was == 'string' else 'a.v'} AS {name}"]
        )
        with pytest.raises(CheckpointError, match=f"{name} was {was}"):
            check_same_definition(manifest, other, SETTINGS)
        with pytest.raises(CheckpointError, match=f"{name} was {was}"):
            Coordinator(replace_field(other, kept=QUERY.outputs), SETTINGS).next_terms(manifest)


def test_what_was_decided_about_a_plan_holds_until_another_plan_or_definition_has_begun():
    assert still_holds(FIRST, commit(FIRST))
    assert not still_holds(FIRST, replace(FIRST, migrations=1))
    assert not still_holds(FIRST, replace(FIRST, replacements=1))
