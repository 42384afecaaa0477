"""What is asked: streams, predicates, windows and outputs, as frozen and validated values."""
