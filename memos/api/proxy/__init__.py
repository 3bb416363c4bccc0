"""`/openai/v1` and `/anthropic/v1`: APIs of language models that add memory to requests and pass them on."""
