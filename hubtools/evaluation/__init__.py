"""Runs of evaluation suites: who may be compared with whom, how sure a figure is, what is kept."""
