"""Chat models behind OpenAI-compatible endpoints, and vLLM."""
