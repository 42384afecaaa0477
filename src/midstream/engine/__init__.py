"""The step: a pure function of a program, slices of state and new rows, in columns from end to end."""
