"""Replacing a running query by another definition: two boxes side by side, and when results pass over."""
