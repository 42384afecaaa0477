"""A drain that fails after its commit: the query goes on as what it is from then on."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest

from midstream.spark.micro_batch_handler import MicroBatchHandler


def test_a_drain_that_ends_a_replacement_and_then_fails_has_ended_it():
    """Otherwise results of the new definition would go where those of the old one went."""

    @contextmanager
    def in_this_thread():
        yield

    def fail(*_arguments):
        raise OSError("no space left")

    manifest = SimpleNamespace(ended_replacement=object())
    runner = SimpleNamespace(manifest=manifest, run_drain_epoch=fail)
    handler = mock.Mock(runner=runner, manifest=manifest, _in_this_thread=in_this_thread)
    handler._serve_definition = lambda: MicroBatchHandler._serve_definition(handler)
    with pytest.raises(OSError, match="no space left"):
        MicroBatchHandler._epoch_without_batch(handler, mock.Mock())
    handler._outputs.end_replacement.assert_called_once_with(manifest.ended_replacement)
