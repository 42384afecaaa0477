"""The demonstration: five streams of a grocery service, joined on Spark and checked against DuckDB."""
