"""`MemOS.adapters`: LoRA adapters of a cube."""

__all__ = ["service"]
