"""Tests of the kernel: MemOS and its services."""
