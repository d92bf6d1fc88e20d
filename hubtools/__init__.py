"""Publish checkpoints and datasets to the Hugging Face Hub with cards that can be trusted."""

__version__ = "0.1.0"
