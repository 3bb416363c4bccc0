"""Embedders, sparse encoders and rerankers."""
