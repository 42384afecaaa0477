"""The in-process runner: the same step, coordinator and manifests as on Spark, in milliseconds."""

from midstream.inline.runner import InlineJoin

__all__ = ["InlineJoin"]
