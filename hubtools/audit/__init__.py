"""The release record: what was published, so that a stranger can check it."""
