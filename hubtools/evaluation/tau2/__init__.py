"""τ²-bench airline: run through its own package, read from its results, and its floor measured."""
