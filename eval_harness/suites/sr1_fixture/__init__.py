"""Builds the data of `sr1_7bench-fixture`."""
