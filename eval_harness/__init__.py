"""Suites, scorers, backends and the runner: asks a model questions and keeps every answer.

Stands alone: it knows nothing of hubtools, which calls it and keeps the record.
"""
