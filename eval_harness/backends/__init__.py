"""Ways to reach a model: `transformers` in this process, or an OpenAI-compatible server."""
