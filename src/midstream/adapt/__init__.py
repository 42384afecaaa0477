"""Adapting: statistics of the streams, what plans cost, which is best, and when it pays to change."""
