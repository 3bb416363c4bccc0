"""What makes the vector and the graph index follow the ledger."""
