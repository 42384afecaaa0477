"""Files: the store interface, its implementations, and the files of a checkpoint and of results."""
