"""The engine: a pure step function of a program, slices of state and new rows, columnar throughout."""
