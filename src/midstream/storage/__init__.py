"""Where bytes lie: the few operations that Midstream asks of a store, and the stores it has."""
