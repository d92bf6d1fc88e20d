"""The standard harness, lm-eval, in an environment of its own and over an address of ours."""
