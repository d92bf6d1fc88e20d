"""Rules that take an answer out of what a model wrote; `eval_harness.extractors` names them."""
