"""Keep the vector and the graph index in step with the ledger."""

__all__ = ["followers", "projection"]
