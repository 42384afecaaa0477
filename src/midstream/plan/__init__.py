"""Plans: trees of joins, and layouts, which say where and by which keys their nodes run."""
