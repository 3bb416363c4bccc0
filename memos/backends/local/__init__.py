"""Chat models of transformers in this process."""
