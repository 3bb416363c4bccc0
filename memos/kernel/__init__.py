"""`MemOS` and its services."""
