"""One check of everything that a GPU changes: KV reuse, batches, eviction and adapters, in one run of minutes.

`make gpu-check` packs it with its wheels into a folder that runs without a network (scripts/gpu_check.py).
"""
