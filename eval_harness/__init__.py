"""Run evaluation suites against models. Never imports hubtools."""
