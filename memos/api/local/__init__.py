"""Calls of the facade from other processes of the same person."""
