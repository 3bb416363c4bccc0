"""Cubes: the ledger that is the truth, the projections that follow it, erasure, verification."""
