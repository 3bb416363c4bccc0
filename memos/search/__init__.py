"""Finds memories: recall arms over the index, fusion, hydration from the ledger, context under a token budget."""
