"""Living within memory: which groups are spilled, which are cleaned up, and what that means for an epoch."""
