"""What a checkpoint directory is, whether it loads and talks; adapters merged into their base."""
