"""What is remembered: slices, the manifest that names them, when they expire and when they merge."""
