"""What is run: plans as trees, and how a plan lays its nodes out over key classes and stages."""
