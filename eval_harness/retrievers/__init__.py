"""Where an agent's searches go: an embedded BM25 index, or a service with the same contract."""
