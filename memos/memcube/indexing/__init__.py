"""What makes the vector and the graph index follow the ledger."""

__all__ = ["followers", "projection"]
