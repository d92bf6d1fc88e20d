"""The pipeline: a plan that is a value, stages that know their inputs, a store that remembers."""
