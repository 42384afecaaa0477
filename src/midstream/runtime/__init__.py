"""Running epochs: the order of a commit, what one engine partition does, what listeners get, crash points."""
