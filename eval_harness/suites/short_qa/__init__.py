"""Short-answer questions whose answers can be looked up again in the packages they came from."""
