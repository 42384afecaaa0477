"""Migrations: moving a running query to another plan, without losing or repeating a result."""
