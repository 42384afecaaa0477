"""Running epochs: the order of a commit, what one engine partition does, and where a process may die."""
