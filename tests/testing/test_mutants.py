"""Each promise can be broken: with a bug in the code, or a store that guarantees less, a seed names it."""

from __future__ import annotations

import errno
import uuid

import msgspec
import numpy as np
from msgspec.structs import replace

from midstream.engine import joiner, program
from midstream.engine.index_rows import merge_rows
from midstream.engine.probe import candidate_pairs
from midstream.engine.program import NewSlice
from midstream.inline import execution
from midstream.plan.state_id import decode_state_id
from midstream.protocol.report import merge_reports
from midstream.runtime import epoch_runner
from midstream.runtime.crash_points import crash_point
from midstream.runtime.epoch_runner import EpochRunner
from midstream.runtime.partition_task import run_partition
from midstream.state.expiry import Expiry
from midstream.state.json_with_digest import digest, digest_in
from midstream.state.manifest import Manifest, encode_manifest
from midstream.storage import manifest_log
from midstream.storage.publish_log import begin_publishing, is_published, noted_epochs
from midstream.storage.slice_files import SliceFiles
from midstream.testing import replacements
from midstream.testing import simulate as simulator
from midstream.testing.faults import Damage, FaultStore, SimulatedCrash
from midstream.testing.simulate import simulate
from tests.testing.eventful_seeds import (
    broken_promises,
    die_in_every_epoch,
    make_eventful,
    without_rescales_meanwhile,
)

SEEDS = range(60)


def test_a_lost_result_is_seen(monkeypatch):
    def lossy(rows, run, windows):
        for left, right in candidate_pairs(rows, run, windows):
            yield left[1:], right[1:]

    monkeypatch.setattr(joiner, "candidate_pairs", lossy)
    assert broken_promises(SEEDS) == {"prefix"}


def test_a_doubled_result_is_seen(monkeypatch):
    def twice(parts):
        return merge_rows([*parts, parts[0].take(np.arange(1))])

    monkeypatch.setattr(joiner, "merge_rows", twice)
    assert broken_promises(SEEDS) == {"prefix"}


def test_results_that_are_noted_before_they_are_published_are_seen(monkeypatch):
    def hasty(self):
        if publication := begin_publishing(self.store, self.manifest):
            for name in publication.earlier_notes:
                self.store.delete(name)
            crash_point("after noting that it was published")
            self._publisher.publish(self.manifest.epoch, publication.outputs)

    monkeypatch.setattr(EpochRunner, "publish", hasty)
    make_eventful(monkeypatch, pause_rate=0.0)
    die_in_every_epoch(monkeypatch, "after noting that it was published")
    assert broken_promises(SEEDS) == {"prefix"}


def test_results_that_are_published_before_it_is_noted_of_which_files_are_seen(monkeypatch):
    def hasty(self):
        if self.manifest.epoch >= 0 and not is_published(noted_epochs(self.store), self.manifest.epoch):
            self._publisher.publish(self.manifest.epoch, self.manifest.outputs)
            crash_point("after publishing")
            begin_publishing(self.store, self.manifest)
            crash_point("after noting that it was published")

    monkeypatch.setattr(EpochRunner, "publish", hasty)
    # A reader has moved the files away, and the manifest is damaged before the driver has noted anything.
    make_eventful(monkeypatch, rot_rate=0.9, move_rate=0.5, pause_rate=0.0)
    die_in_every_epoch(monkeypatch, "after publishing")
    assert broken_promises(SEEDS) == {"prefix"}


def test_results_that_are_published_before_their_commit_are_seen(monkeypatch):
    def hasty(self, epoch, report):
        if self._sinks["results"] is not None:
            self._sinks["results"].publish([o for o in report.outputs if o.table == "results"])

    monkeypatch.setattr(execution.InlineExecution, "prepare", hasty)
    assert broken_promises(SEEDS, likely=[127, 43, 87]) == {"prefix"}


def test_late_rows_that_are_not_published_are_seen(monkeypatch):
    monkeypatch.setattr(execution.InlineExecution, "late", lambda *_: [])
    assert broken_promises(SEEDS) == {"prefix"}


def test_rows_that_are_not_counted_are_seen(monkeypatch):
    real = program.StreamCounts.__add__
    monkeypatch.setattr(program.StreamCounts, "__add__", lambda a, b: replace(real(a, b), null_key=0))
    assert broken_promises(SEEDS) == {"conservation"}


def test_a_watermark_that_is_wrong_by_a_moment_is_seen(monkeypatch):
    def behind(reports):
        merged = merge_reports(reports)
        counts = {n: replace(c, latest=c.latest and c.latest - 1) for n, c in merged.counts.items()}
        return replace(merged, counts=counts)

    monkeypatch.setattr(execution, "merge_reports", behind)
    assert broken_promises(SEEDS) == {"conservation"}


def test_state_that_goes_before_its_time_is_seen(monkeypatch):
    real = Expiry.has_expired
    early = 10_000_000
    monkeypatch.setattr(
        Expiry,
        "has_expired",
        lambda self, s, latest, *more: real(self, s, [t - early for t in latest], *more),
    )
    # Where a result needed it, the result is missing; where none came to need it, only this tells.
    assert "conservation" in broken_promises(SEEDS, enough=8, likely=[16, 21, 1, 14, 18, 12])


def test_an_epoch_that_writes_something_else_when_it_is_run_again_is_seen(monkeypatch):
    real = SliceFiles.encode

    def unlike(self, new):
        metadata = {**(new.table.schema.metadata or {}), "x": uuid.uuid4().hex}
        return real(self, NewSlice(new.slice, new.table.replace_schema_metadata(metadata)))

    monkeypatch.setattr(SliceFiles, "encode", unlike)
    assert broken_promises(SEEDS) == {"replay"}


def test_a_commit_that_a_power_cut_undoes_is_seen(monkeypatch):
    def commit(store, manifest):
        store.sync("slices")
        name = manifest_log.manifest_name(manifest.lease, manifest.epoch)
        data = encode_manifest(manifest)
        store.put(name, data)
        return digest_in(data)

    monkeypatch.setattr(epoch_runner, "commit_manifest", commit)
    # If it was cut off before it was confirmed, what readers saw of it already tells, or what was deleted.
    assert broken_promises(SEEDS, likely=[22]) in ({"lasting"}, {"prefix"}, {"fsck"})


class FailingCommits(FaultStore):
    """Manifests get their name, but the disk does not confirm it."""

    def put_if_absent(self, name, data):
        if name.startswith("manifests/") and name not in self.inner.files and self.draw_fault(0.5):
            self._put(name, data)
            raise OSError(errno.EIO, "simulated", name)
        return super().put_if_absent(name, data)


def test_going_on_from_a_commit_that_was_not_confirmed_is_safe_only_if_it_is_made_to_last(monkeypatch):
    monkeypatch.setattr(simulator, "FaultStore", FailingCommits)
    for seed in range(10):
        simulate(seed)
    real = FaultStore.sync
    monkeypatch.setattr(FaultStore, "sync", lambda self, at: None if at == "manifests" else real(self, at))
    make_eventful(monkeypatch, crash_rate=0.1, pause_rate=0.0)
    assert broken_promises(SEEDS, likely=[173]) == {"lasting"}


def test_a_commit_before_its_slices_last_is_seen(monkeypatch):
    real = FaultStore.sync
    monkeypatch.setattr(FaultStore, "sync", lambda self, at: None if at == "slices" else real(self, at))
    assert broken_promises(SEEDS, likely=[52, 20, 43]) == {"fsck"}


def test_files_that_are_left_behind_are_seen(monkeypatch):
    monkeypatch.setattr(EpochRunner, "_sweep", lambda *_: None)
    assert broken_promises(SEEDS) == {"litter"}


def test_results_that_depend_on_the_partitions_are_seen(monkeypatch):
    def lossy(program, stage, partition, arrivals, *shell):
        # No run that is compared with the oracle has a fifth partition.
        return run_partition(program, stage, partition, {} if partition == 4 else arrivals, *shell)

    without_rescales_meanwhile(monkeypatch)
    monkeypatch.setattr(execution, "run_partition", lossy)
    assert broken_promises(SEEDS) == {"metamorphic"}


def test_a_query_that_comes_to_no_end_is_seen(monkeypatch):
    monkeypatch.setattr(simulator._Simulation, "_run_epochs", lambda self: False)
    assert broken_promises(SEEDS) == {"liveness"}


def test_an_error_that_nobody_put_in_is_seen(monkeypatch):
    def fail(self, epoch, report):
        raise ZeroDivisionError

    monkeypatch.setattr(execution.InlineExecution, "prepare", fail)
    assert broken_promises(SEEDS) == {"errors"}


def test_damage_that_is_not_refused_is_seen(monkeypatch):
    def unchecked(data, name):
        body = msgspec.json.decode(data, type=dict[str, msgspec.Raw])["manifest"]
        return msgspec.json.decode(body, type=Manifest, dec_hook=decode_state_id), digest(bytes(body))

    def another_count(self):
        name = next(manifest_log.manifests_newest_first(self.inner), None)
        if name is None:
            return None
        before = self.inner.files[name.file]
        head, found, rest = before.to_pybytes().rpartition(b'"results":')
        self.inner.put(name.file, head + found + b"1" + rest)
        return Damage(name.file, before, self.inner.files[name.file])

    monkeypatch.setattr(FaultStore, "rot", another_count)
    # The count that is changed may be that of another definition.
    monkeypatch.setattr(replacements, "RATE", 0.0)
    for seed in range(10):
        simulate(seed)
    monkeypatch.setattr(manifest_log, "decode_manifest", unchecked)
    # The next manifest names the digest of the one that it follows from, and goes on with its count.
    assert broken_promises(SEEDS, likely=[80, 36, 24]) in ({"fsck"}, {"conservation"})


def test_a_store_that_tears_files_under_their_names_is_seen(monkeypatch):
    class Tearing(FaultStore):
        def rename(self, name, other):
            whole = self.inner.files.get(name)
            if whole is not None and self.draw_fault(0.1):
                self._change(other, whole.slice(0, whole.size // 2))
                self._change(name, None)
                raise SimulatedCrash(name)
            super().rename(name, other)

    monkeypatch.setattr(simulator, "FaultStore", Tearing)
    assert broken_promises(SEEDS, likely=[81]) == {"prefix"}


def test_a_store_that_lists_manifests_late_is_seen(monkeypatch):
    class Late(FaultStore):
        def list(self, folder):
            names = super().list(folder)
            # One that is missing is made good by its intent; of several this says nothing.
            return names[:-3] if folder == "manifests" and self.draw_fault(0.1) else names

    monkeypatch.setattr(simulator, "FaultStore", Late)
    assert broken_promises(SEEDS, likely=[51]) in ({"errors"}, {"lasting"}, {"fsck"})
