"""Measurements: each prints its closing line of JSON, with machine, seed and commit."""
