"""Merging adapters into their base: plan from headers, then stream."""
