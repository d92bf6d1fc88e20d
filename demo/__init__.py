"""The whole job on this machine: `python -m demo` (or `make demo`)."""
