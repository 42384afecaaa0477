"""Stored state: slices, the manifest that lists them, when they expire and when they merge."""
