"""Changing the plan of a running query: what both plans share, who makes which results, when it is over."""
