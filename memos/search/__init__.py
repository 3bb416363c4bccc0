"""Finds memories for a question: recall, fusion, ranking, reranking and explanation."""
