"""Aggregates over windows of the join's results: partial ones per pane, merged by group, out when final."""
