"""Embedders, sparse encoders and rerankers."""

__all__ = ["bm25", "cache", "cross_encoder", "e5", "endpoint", "minilm", "rerank_endpoint"]
