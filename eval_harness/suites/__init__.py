"""One folder per suite: `suite.toml` says how to ask and score, `items.jsonl` what is asked."""
