"""What a model calls its tensors: on disk, in memory, in older releases; told by transformers."""
