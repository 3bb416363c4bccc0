"""Faults together and for long: kills, disks, networks, clocks and models, under load that a history checks."""

from benchmarks.chaos.program import main

__all__ = ["main"]
