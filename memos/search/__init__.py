"""Finds memories for a question: recall, fusion, ranking, reranking and explanation."""

__all__ = ["explain", "question", "rerank", "searcher"]
