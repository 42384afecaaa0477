"""The query: streams, predicates, windows and outputs, as frozen and validated values."""
