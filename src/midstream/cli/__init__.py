"""The command line: one file per command, and none of them imports Spark before it runs."""
